// SPDX-License-Identifier: Apache-2.0
// Tests of plans for configurations from real nodes.
#include "src/runtime/engine/plan.h"

#include <fnmatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "src/formats/text_edit.h"
#include "src/formats/toml.h"
#include "src/runtime/engine/text_diff.h"

namespace tessera::engine {
namespace {

using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

constexpr char kMain[] = "/etc/containerd/config.toml";
constexpr char kDropIn[] = "/etc/containerd/conf.d/99-tessera.toml";

ConfigTree TreeOf(const Files& files) {
  ConfigTree tree;
  tree.read = [files](const std::string& path) -> Result<std::optional<std::string>> {
    const auto found = files.find(path);
    if (found == files.end()) return std::optional<std::string>();
    return std::optional<std::string>(found->second);
  };
  tree.glob = [files](const std::string& pattern) {
    std::vector<std::string> paths;
    for (const auto& [path, text] : files) {
      if (::fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0) paths.push_back(path);
    }
    return paths;
  };
  return tree;
}

EngineSettings Containerd(std::optional<Version> version) {
  EngineSettings settings;
  settings.config = kMain;
  settings.drop_in = kDropIn;
  settings.runtime_path = "/opt/tessera/bin/tessera-runtime";
  settings.set_as_default = true;
  settings.engine_version = version;
  return settings;
}

Result<Files> Applied(EngineKind engine, const EngineSettings& settings, const Files& files) {
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(engine, settings, TreeOf(files)));
  Files after = files;
  for (const FilePlan& file : plan.files) {
    const auto old = files.find(file.path);
    ASSIGN_OR_RETURN(
        after[file.path],
        ApplyFilePlan(file, old == files.end() ? std::optional<std::string>() : old->second));
  }
  return after;
}

std::string Diff(EngineKind engine, const EngineSettings& settings, const Files& files) {
  const auto after = Applied(engine, settings, files);
  if (!after.ok()) return after.status().ToString();
  std::string out;
  for (const auto& [path, text] : *after) {
    const auto old = files.find(path);
    out += UnifiedDiff(path, old == files.end() ? std::optional<std::string>() : old->second, text);
  }
  return out;
}

constexpr Version kVersion16{1, 6};
constexpr Version kVersion22{2, 2};

const char kKubeadmV2[] = R"(# written by cloud-init
version = 2
root = "/var/lib/containerd"

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.k8s.io/pause:3.9"   # keep in step with kubeadm
    [plugins."io.containerd.grpc.v1.cri".containerd]
      snapshotter = "overlayfs"
      default_runtime_name = "runc"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
          pod_annotations = []
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            BinaryName = ""
            SystemdCgroup = true
  [plugins."io.containerd.internal.v1.opt"]
    path = "/opt/containerd"
)";

TEST(ContainerdPlan, EditsAVersion2SectionInPlaceBeforeContainerd21) {
  EXPECT_EQ(Diff(EngineKind::kContainerd, Containerd(kVersion16), {{kMain, kKubeadmV2}}),
            R"(--- /etc/containerd/config.toml
+++ /etc/containerd/config.toml
@@ -7,7 +7,7 @@
     sandbox_image = "registry.k8s.io/pause:3.9"   # keep in step with kubeadm
     [plugins."io.containerd.grpc.v1.cri".containerd]
       snapshotter = "overlayfs"
-      default_runtime_name = "runc"
+      default_runtime_name = "nvidia"
       [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
         [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
           runtime_type = "io.containerd.runc.v2"
@@ -15,5 +15,13 @@
           [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
             BinaryName = ""
             SystemdCgroup = true
+
+        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
+          runtime_type = "io.containerd.runc.v2"
+          pod_annotations = []
+
+          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
+            SystemdCgroup = true
+            BinaryName = "/opt/tessera/bin/tessera-runtime"
   [plugins."io.containerd.internal.v1.opt"]
     path = "/opt/containerd"
)");
}

TEST(ContainerdPlan, UsesADropInOfTheSameVersionSinceContainerd21) {
  const auto after =
      Applied(EngineKind::kContainerd, Containerd(kVersion22), {{kMain, kKubeadmV2}});
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_EQ(
      after->at(kDropIn),
      R"(# Written by "tessera-runtime configure"; "tessera-runtime configure --undo" removes it.
version = 2

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "nvidia"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
pod_annotations = []

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
SystemdCgroup = true
BinaryName = "/opt/tessera/bin/tessera-runtime"
)");
  // Version 2.2 imports the directory by default.
  EXPECT_EQ(after->at(kMain), kKubeadmV2);
}

TEST(ContainerdPlan, ImportsTheDropInOnlyIfNoPatternCoversIt) {
  const Version version21{2, 1};
  const std::string diff =
      Diff(EngineKind::kContainerd, Containerd(version21), {{kMain, kKubeadmV2}});
  EXPECT_THAT(diff, HasSubstr(" root = \"/var/lib/containerd\"\n"
                              "+imports = [\"/etc/containerd/conf.d/99-tessera.toml\"]\n \n"));
  for (const char* imports : {"'/etc/containerd/conf.d/*.toml'", "\"conf.d/*.toml\"",
                              "\"/etc/containerd/conf.d/99-tessera.toml\""}) {
    const std::string text = fmt::format("version = 3\nimports = [{}]\n", imports);
    const auto after = Applied(EngineKind::kContainerd, Containerd(version21), {{kMain, text}});
    ASSERT_TRUE(after.ok());
    EXPECT_EQ(after->at(kMain), text);
  }
}

TEST(ContainerdPlan, AppendsToImportsInTheirFormat) {
  const std::string text =
      "version = 3\r\nimports = [\r\n  '/etc/site/*.toml',  # ours\r\n]\r\n[debug]\r\nlevel = "
      "'info'";
  const auto after = Applied(EngineKind::kContainerd, Containerd(Version{2, 1}), {{kMain, text}});
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_EQ(
      after->at(kMain),
      "version = 3\r\nimports = [\r\n  '/etc/site/*.toml',\r\n  "
      "\"/etc/containerd/conf.d/99-tessera.toml\",  # ours\r\n]\r\n[debug]\r\nlevel = 'info'");
}

TEST(ContainerdPlan, WritesBothFilesForAnEmptyConfiguration) {
  for (const Files& files : {Files{}, Files{{kMain, ""}}, Files{{kMain, "# empty\n"}}}) {
    const auto after = Applied(EngineKind::kContainerd, Containerd(kVersion22), files);
    ASSERT_TRUE(after.ok()) << after.status().ToString();
    EXPECT_THAT(after->at(kMain), HasSubstr("version = 3\n"));
    EXPECT_THAT(after->at(kDropIn), HasSubstr("io.containerd.cri.v1.runtime"));
  }
  // A version that every supported containerd accepts.
  const auto unknown = Applied(EngineKind::kContainerd, Containerd(std::nullopt), {});
  ASSERT_TRUE(unknown.ok());
  EXPECT_EQ(unknown->at(kMain),
            "version = 2\nimports = [\"/etc/containerd/conf.d/99-tessera.toml\"]\n");
  EXPECT_THAT(unknown->at(kDropIn), HasSubstr("io.containerd.grpc.v1.cri"));
}

TEST(ContainerdPlan, Version1IsEditedInPlaceUnderItsOldNames) {
  const std::string text =
      "[plugins]\n  [plugins.cri]\n    [plugins.cri.containerd]\n      snapshotter = "
      "\"overlayfs\"\n";
  // Version 2.2 no longer reads the old names.
  const auto newer = Applied(EngineKind::kContainerd, Containerd(kVersion22), {{kMain, text}});
  ASSERT_TRUE(newer.ok());
  EXPECT_EQ(newer->at(kMain), text);
  EXPECT_THAT(newer->at(kDropIn), HasSubstr("version = 3\n"));

  const auto after = Applied(EngineKind::kContainerd, Containerd(kVersion16), {{kMain, text}});
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_FALSE(after->contains(kDropIn));
  const auto document = ParseToml(after->at(kMain));
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(
      FindPath(*document, {"plugins", "cri", "containerd", "default_runtime_name"})->string_value(),
      "nvidia");
  EXPECT_EQ(FindPath(*document, {"plugins", "cri", "containerd", "runtimes", "nvidia", "options",
                                 "BinaryName"})
                ->string_value(),
            "/opt/tessera/bin/tessera-runtime");
}

TEST(ContainerdPlan, DropInHasTheVersionOfTheMainFile) {
  const auto after = Applied(EngineKind::kContainerd, Containerd(std::nullopt),
                             {{kMain, "version = 4\n[plugins.'io.containerd.cri.v1.runtime']\n"}});
  ASSERT_TRUE(after.ok());
  EXPECT_THAT(after->at(kDropIn), HasSubstr("version = 4\n"));
}

TEST(ContainerdPlan, EditsASectionInPlaceIfTheEngineVersionIsUnknown) {
  const auto plan = PlanContainerd(Containerd(std::nullopt), TreeOf({{kMain, kKubeadmV2}}));
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->files.size(), 1u);
  EXPECT_EQ(plan->files[0].path, kMain);
  EXPECT_THAT(plan->notes.at(0), HasSubstr("version of containerd is unknown"));
}

TEST(ContainerdPlan, EditsTheFileWhoseSectionTakesEffectBeforeContainerd21) {
  const char kSite[] = "/etc/containerd/conf.d/10-site.toml";
  const std::string main =
      std::string("imports = ['/etc/containerd/conf.d/*.toml']\n") + kKubeadmV2;
  const std::string site =
      "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\n"
      "runtime_type = 'io.containerd.runc.v2'\n"
      "options = { SystemdCgroup = false }\n";
  const auto after =
      Applied(EngineKind::kContainerd, Containerd(kVersion16), {{kMain, main}, {kSite, site}});
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_EQ(after->at(kMain), main);
  const auto document = ParseToml(after->at(kSite));
  const Json* options = FindPath(*document, {"plugins", "io.containerd.grpc.v1.cri", "containerd",
                                             "runtimes", "nvidia", "options"});
  ASSERT_NE(options, nullptr);
  EXPECT_FALSE(options->Find("SystemdCgroup")->bool_value());
}

TEST(ContainerdPlan, ReplacesTheProgramOfAnNvidiaInstallation) {
  const std::string text = R"(version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
options = { BinaryName = "/usr/bin/nvidia-container-runtime", SystemdCgroup = true, "Odd Key" = 1.0 }
)";
  EngineSettings settings = Containerd(kVersion22);
  settings.drop_in.clear();
  EXPECT_EQ(Diff(EngineKind::kContainerd, settings, {{kMain, text}}),
            R"(--- /etc/containerd/config.toml
+++ /etc/containerd/config.toml
@@ -3,4 +3,4 @@
 default_runtime_name = "nvidia"
 [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
 runtime_type = "io.containerd.runc.v2"
-options = { BinaryName = "/usr/bin/nvidia-container-runtime", SystemdCgroup = true, "Odd Key" = 1.0 }
+options = { BinaryName = "/opt/tessera/bin/tessera-runtime", SystemdCgroup = true, "Odd Key" = 1.0 }
)");
}

TEST(ContainerdPlan, DoesNotCopyFromAVirtualMachineRuntime) {
  const std::string text = R"(version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "kata"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
options.ConfigPath = "/etc/kata.toml"
)";
  const auto after = Applied(EngineKind::kContainerd, Containerd(kVersion22), {{kMain, text}});
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->at(kDropIn).find("ConfigPath"), std::string::npos);
}

TEST(ContainerdPlan, RejectsAPlanThatALaterImportOverrides) {
  const auto plan =
      PlanContainerd(Containerd(kVersion22),
                     TreeOf({{kMain, "version = 3\n"},
                             {"/etc/containerd/conf.d/99-zz.toml",
                              "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n"
                              "default_runtime_name = 'runc'\n"}}));
  EXPECT_EQ(plan.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(plan.status().message(), HasSubstr("99-zz.toml"));
}

TEST(ContainerdPlan, NotesADisabledCriPlugin) {
  const auto plan =
      PlanContainerd(Containerd(kVersion22), TreeOf({{kMain, "disabled_plugins = [\"cri\"]\n"}}));
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->notes, ::testing::Contains(HasSubstr("disabled_plugins")));
}

TEST(ContainerdPlan, ErrorsNameFileAndLine) {
  const auto plan =
      PlanContainerd(Containerd(kVersion22), TreeOf({{kMain, "version = 2\n[plugins\n"}}));
  EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr("/etc/containerd/config.toml: TOML: line 2"));
  EXPECT_FALSE(PlanContainerd(Containerd(kVersion22),
                              TreeOf({{kMain, "plugins = 1\nversion = 3\n"}, {kDropIn, ""}}))
                   .ok());
}

TEST(ContainerdPlan, ConfiguringAgainChangesNothing) {
  for (const Version version : {kVersion16, kVersion22}) {
    const auto once = Applied(EngineKind::kContainerd, Containerd(version), {{kMain, kKubeadmV2}});
    ASSERT_TRUE(once.ok());
    const auto twice = Applied(EngineKind::kContainerd, Containerd(version), *once);
    ASSERT_TRUE(twice.ok());
    EXPECT_EQ(*twice, *once);
  }
}

const char kDaemonJson[] = R"({
    "exec-opts": [
        "native.cgroupdriver=systemd"
    ],
    "log-driver": "json-file",
    "log-opts": {
        "max-size": "100m"
    },
    "features": {"containerd-snapshotter": true},
    "storage-driver": "overlay2"
}
)";

EngineSettings Docker() {
  EngineSettings settings;
  settings.config = "/etc/docker/daemon.json";
  settings.runtime_path = "/opt/tessera/bin/tessera-runtime";
  settings.set_as_default = true;
  return settings;
}

TEST(DockerPlan, AddsRuntimeAndDefaultRuntime) {
  EXPECT_EQ(Diff(EngineKind::kDocker, Docker(), {{"/etc/docker/daemon.json", kDaemonJson}}),
            R"(--- /etc/docker/daemon.json
+++ /etc/docker/daemon.json
@@ -7,5 +7,12 @@
         "max-size": "100m"
     },
     "features": {"containerd-snapshotter": true},
-    "storage-driver": "overlay2"
+    "storage-driver": "overlay2",
+    "default-runtime": "nvidia",
+    "runtimes": {
+        "nvidia": {
+            "args": [],
+            "path": "/opt/tessera/bin/tessera-runtime"
+        }
+    }
 }
)");
}

TEST(DockerPlan, KeepsOtherFeaturesWhenItEnablesCdi) {
  EngineSettings settings = Docker();
  settings.enable_cdi = true;
  const auto after = Applied(EngineKind::kDocker, settings, {{settings.config, kDaemonJson}});
  ASSERT_TRUE(after.ok());
  EXPECT_THAT(after->at(settings.config),
              HasSubstr(R"({"containerd-snapshotter": true, "cdi": true})"));
}

TEST(DockerPlan, ReplacesOnlyThePathOfAnExistingRuntime) {
  EngineSettings settings = Docker();
  settings.set_as_default = false;
  const std::string text =
      R"({"runtimes":{"nvidia":{"path":"nvidia-container-runtime","runtimeArgs":["-v"]}}})";
  const auto after = Applied(EngineKind::kDocker, settings, {{settings.config, text}});
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->at(settings.config),
            R"({"runtimes":{"nvidia":{"path":"/opt/tessera/bin/tessera-runtime",)"
            R"("runtimeArgs":["-v"]}}})");
}

TEST(DockerPlan, RejectsCommentsWithTheirLine) {
  const auto plan =
      PlanDocker(Docker(), TreeOf({{"/etc/docker/daemon.json", "{\n  # mirrors\n}\n"}}));
  EXPECT_THAT(plan.status().message(), HasSubstr("line 2"));
  EXPECT_THAT(plan.status().message(), HasSubstr("/etc/docker/daemon.json"));
}

EngineSettings Crio() {
  EngineSettings settings = Docker();
  settings.config = "/etc/crio/crio.conf";
  settings.drop_in = "/etc/crio/crio.conf.d/99-tessera.toml";
  return settings;
}

TEST(CrioPlan, CopiesTheMonitorOfTheDefaultRuntime) {
  const auto after = Applied(
      EngineKind::kCrio, Crio(),
      {{"/etc/crio/crio.conf.d/10-crio.conf",
        "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\n"
        "runtime_path = \"/usr/bin/crun\"\nmonitor_path = \"/usr/libexec/crio/conmon\"\n"}});
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_EQ(
      after->at("/etc/crio/crio.conf.d/99-tessera.toml"),
      R"(# Written by "tessera-runtime configure"; "tessera-runtime configure --undo" removes it.

[crio.runtime]
default_runtime = "nvidia"

[crio.runtime.runtimes.nvidia]
runtime_path = "/opt/tessera/bin/tessera-runtime"
runtime_type = "oci"
monitor_path = "/usr/libexec/crio/conmon"
)");
}

TEST(CrioPlan, RejectsADefaultThatALaterFileOverrides) {
  const auto plan = PlanCrio(Crio(), TreeOf({{"/etc/crio/crio.conf.d/99-z.conf",
                                              "[crio.runtime]\ndefault_runtime = \"runc\"\n"}}));
  EXPECT_EQ(plan.status().code(), Code::kFailedPrecondition);
}

// The undo edits remove only our keys, even if others have added keys since.
TEST(UndoEdits, RemoveOnlyOurKeys) {
  const auto plan = PlanContainerd(Containerd(kVersion16), TreeOf({{kMain, kKubeadmV2}}));
  ASSERT_TRUE(plan.ok());
  const FilePlan& file = plan->files.at(0);
  const auto ours = ApplyFilePlan(file, kKubeadmV2);
  const auto undo = UndoEdits(file, kKubeadmV2);
  ASSERT_TRUE(ours.ok() && undo.ok());
  EXPECT_EQ(*PatchToml(*ours + "\n[debug]\nlevel = \"debug\"\n", *undo),
            std::string(kKubeadmV2) + "\n[debug]\nlevel = \"debug\"\n");
}

TEST(ParseVersion, ReadsTheFirstTwoNumbers) {
  EXPECT_EQ(ParseVersion("2.2.9+unknown"), (Version{2, 2}));
  EXPECT_EQ(ParseVersion("v1.7.0"), (Version{1, 7}));
  EXPECT_EQ(ParseVersion("containerd"), std::nullopt);
  EXPECT_EQ(ParseVersion("2"), std::nullopt);
}

TEST(UnifiedDiff, ShowsMissingLineEnds) {
  EXPECT_EQ(UnifiedDiff("f", "a\n", "a\n"), "");
  EXPECT_EQ(UnifiedDiff("f", "a", "a\n"),
            "--- f\n+++ f\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
  EXPECT_EQ(UnifiedDiff("f", std::nullopt, "a\n"), "--- /dev/null\n+++ f\n@@ -0,0 +1,1 @@\n+a\n");
}

TEST(FindLeftovers, NamesFileAndRemedy) {
  Files files = {
      {kMain, "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"},
      {"/etc/containerd/conf.d/50-nvidia.toml",
       "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]\n"
       "nvidia = {runtime_type='io.containerd.runc.v2', "
       "options={BinaryName='/usr/bin/nvidia-container-runtime'}}\n"
       "nvidia-cdi = {runtime_type='io.containerd.runc.v2', "
       "options={BinaryName='/usr/local/nvidia/toolkit/nvidia-container-runtime.cdi'}}\n"},
      {"/etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n"},
      {"/etc/cdi/nic.yaml", "kind: vendor.com/nic\n"},
  };
  const auto notes =
      MakePlan(EngineKind::kContainerd, Containerd(Version{2, 2}), TreeOf(files))->notes;
  ASSERT_EQ(notes.size(), 2u) << notes.back();
  EXPECT_THAT(notes[0], HasSubstr("/etc/containerd/conf.d/50-nvidia.toml: the runtime handler "
                                  "\"nvidia-cdi\" runs /usr/local/nvidia/toolkit/"));
  EXPECT_THAT(notes[0], HasSubstr("remove it"));
  EXPECT_THAT(notes[1], HasSubstr("/etc/cdi/nvidia.yaml"));
}

TEST(FindLeftovers, FindsEntriesOfDockerAndCrio) {
  EngineSettings docker;
  docker.config = "/etc/docker/daemon.json";
  docker.runtime_path = "/opt/tessera/bin/tessera-runtime";
  const Files daemon = {
      {docker.config,
       R"({"default-runtime": "old", "runtimes": {"old": {"path": "nvidia-container-runtime"},
                             "nvidia": {"path": "nvidia-container-runtime"}, "crun": {"path": "crun"}}})"}};
  const auto notes = MakePlan(EngineKind::kDocker, docker, TreeOf(daemon))->notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("handler \"old\" runs nvidia-container-runtime"));
  EngineSettings crio = docker;
  crio.config = "/etc/crio/crio.conf";
  crio.drop_in = "/etc/crio/crio.conf.d/99-tessera.toml";
  const Files hooks = {
      {"/etc/crio/crio.conf.d/10-nvidia.conf",
       "[crio.runtime.runtimes.nvidia-legacy]\nruntime_path = "
       "\"/usr/bin/nvidia-container-runtime.legacy\"\n"},
      {"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
       R"({"version":"1.0.0","hook":{"path":"/usr/bin/nvidia-container-runtime-hook"}})"},
      {"/etc/containers/oci/hooks.d/other.json", R"({"hook":{"path":"/usr/bin/other"}})"}};
  const auto of_crio = MakePlan(EngineKind::kCrio, crio, TreeOf(hooks))->notes;
  ASSERT_EQ(of_crio.size(), 2u);
  EXPECT_THAT(of_crio[0], HasSubstr("10-nvidia.conf: the runtime handler \"nvidia-legacy\""));
  EXPECT_THAT(of_crio[1],
              HasSubstr("oci-nvidia-hook.json runs /usr/bin/nvidia-container-runtime-hook"));
}

}  // namespace
}  // namespace tessera::engine
