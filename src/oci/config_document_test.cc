// SPDX-License-Identifier: Apache-2.0
#include "src/oci/config_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace tessera::oci {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kText =
    R"({"ociVersion":"1.3.9","future":{"x":1.0,"y":[1e3,18446744073709551616]},)"
    R"("process":{"env":["A=1","B=2","A=3"],"user":{"uid":0}},"root":{"path":"rootfs"},)"
    R"("mounts":[{"destination":"/proc","type":"proc","newOption":true},)"
    R"({"destination":"/dev/","type":"tmpfs","source":"tmpfs"}],)"
    R"("annotations":{"io.kubernetes.cri.container-name":"main","empty":""},)"
    R"("linux":{"cgroupsPath":"/kubepods/x","seccomp":{"defaultAction":"SCMP_ACT_ERRNO"}}})";

ConfigDocument Sample() { return ConfigDocument::Parse(kText, "/bundle").value(); }

TEST(ConfigDocument, WithoutEditsTheTextIsUnchanged) {
  EXPECT_EQ(Sample().json().Serialize(), kText);
}

TEST(ConfigDocument, EditsLeaveEverythingElse) {
  ConfigDocument document = Sample();
  ASSERT_TRUE(document.AddMount({"/x", "bind", "/y", {"ro"}}).ok());
  ASSERT_TRUE(document.AddDevice({.path = "/dev/nvidia0", .major_number = 195}).ok());
  document.MutableEnv()->Set("A", "4");
  const std::string text = document.json().Serialize();
  EXPECT_THAT(text, HasSubstr(R"("future":{"x":1.0,"y":[1e3,18446744073709551616]})"));
  EXPECT_THAT(text, HasSubstr(R"("newOption":true)"));
  EXPECT_THAT(text, HasSubstr(R"("seccomp":{"defaultAction":"SCMP_ACT_ERRNO"})"));
  EXPECT_THAT(text, HasSubstr(R"("env":["A=4","B=2"])"));
}

TEST(ConfigDocument, TheLastEntryOfAVariableCounts) { EXPECT_EQ(Sample().env().Get("A"), "3"); }

TEST(ConfigDocument, AMountReplacesAMountWithAnEquivalentPath) {
  ConfigDocument document = Sample();
  ASSERT_TRUE(document.AddMount({"/dev", "bind", "/host", {}}).ok());
  const auto mounts = document.Mounts();
  ASSERT_EQ(mounts.size(), 2u);
  EXPECT_EQ(mounts[1].source, "/host");
}

TEST(ConfigDocument, DeviceAndRuleAreAddedOnce) {
  ConfigDocument document = Sample();
  const DeviceNode node{.path = "/dev/nvidia0", .major_number = 195, .minor_number = 0};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(document.AddDevice(node).ok());
    ASSERT_TRUE(document.AllowDevice(node).ok());
    ASSERT_TRUE(document.AddGroup(44).ok());
  }
  const Json* linux_part = document.json().Find("linux");
  EXPECT_EQ(linux_part->Find("devices")->Serialize(),
            R"([{"path":"/dev/nvidia0","type":"c","major":195,"minor":0,"fileMode":438,)"
            R"("uid":0,"gid":0}])");
  EXPECT_EQ(linux_part->Find("resources")->Find("devices")->Serialize(),
            R"([{"allow":true,"type":"c","major":195,"minor":0,"access":"rw"}])");
  EXPECT_EQ(document.json().Find("process")->Find("user")->Find("additionalGids")->Serialize(),
            "[44]");
}

TEST(ConfigDocument, AMemberOfTheWrongTypeIsAnErrorThatNamesIt) {
  auto document = ConfigDocument::Parse(R"({"mounts":{},"linux":7,"process":{"env":"x"}})", "/b");
  ASSERT_TRUE(document.ok());
  EXPECT_THAT(document->AddMount({"/x", "", "", {}}).message(), HasSubstr("\"mounts\""));
  EXPECT_THAT(document->AllowDevice({}).message(), HasSubstr("\"linux\""));
  EXPECT_THAT(document->MutableEnv().status().message(), HasSubstr("\"env\""));
  EXPECT_THAT(document->RootPath().status().message(), HasSubstr("root.path"));
  EXPECT_FALSE(ConfigDocument::Parse("[]", "/b").ok());
}

TEST(ConfigDocument, SaveKeepsModeAndLeavesNoOtherFile) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "config.json");
  ASSERT_TRUE(WriteFileAtomically(path, kText, 0640).ok());
  ConfigDocument document = ConfigDocument::Load(dir.path()).value();
  document.MutableEnv()->Set("C", "5");
  ASSERT_TRUE(document.Save().ok());
  EXPECT_EQ(ConfigDocument::Load(dir.path()).value().env().Get("C"), "5");
  EXPECT_EQ(ListDir(dir.path()).value().size(), 1u);
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST(ConfigDocument, LoadErrorsNameTheFile) {
  const TempDir dir;
  EXPECT_THAT(ConfigDocument::Load(dir.path()).status().message(), HasSubstr("config.json"));
  EXPECT_THAT(ConfigDocument::Load("/no/bundle").status().message(), HasSubstr("/no/bundle"));
  ASSERT_TRUE(WriteFileAtomically(JoinPath(dir.path(), "config.json"), "{\"a\":", 0644).ok());
  EXPECT_THAT(ConfigDocument::Load(dir.path()).status().message(),
              HasSubstr(JoinPath(dir.path(), "config.json") + ": not valid JSON at byte"));
}

TEST(CleanPath, DoesNotReadTheFileSystem) {
  EXPECT_EQ(CleanPath("/dev//x/../shm/."), "/dev/shm");
  EXPECT_EQ(CleanPath("../.."), "/");
  EXPECT_TRUE(IsBelow("/dev/shm", "/dev"));
  EXPECT_FALSE(IsBelow("/device", "/dev"));
  EXPECT_TRUE(IsBelow("/x", "/"));
}

TEST(CleanPath, PathsThatOnlyBeginAlikeAreNotBelow) {
  EXPECT_TRUE(IsBelow("/dev", "/dev"));
  EXPECT_FALSE(IsBelow("/dev", "/dev/shm"));
  EXPECT_FALSE(IsBelow("/devshm", "/dev"));
  EXPECT_FALSE(IsBelow("/x/dev/shm", "/dev"));
  EXPECT_EQ(CleanPath("a/b/../../../c"), "/c");
  EXPECT_EQ(CleanPath("/a/.../b"), "/a/.../b");
  EXPECT_EQ(CleanPath(""), "/");
}

TEST(ConfigDocument, ErasesMountsFromADirAndNoOthers) {
  auto document = *ConfigDocument::Parse(
      R"({"mounts":[{"destination":"/a","source":"/bundle/tessera/tree"},)"
      R"({"destination":"/b","source":"/bundle//tessera"},{"destination":"/c",)"
      R"("source":"/bundle/tessera2"},)"
      R"({"destination":"/d","source":"tmpfs"},{"destination":"/e"},)"
      R"({"destination":"/f","source":"/bundle/tessera/../other"}]})",
      "/bundle");
  document.EraseMountsFrom("/bundle/tessera");
  std::string remaining;
  for (const Mount& mount : document.Mounts()) remaining += mount.destination;
  EXPECT_EQ(remaining, "/c/d/e/f");
}

TEST(ConfigDocument, MountsAndDevicesWithoutAPathAreKept) {
  auto document = *ConfigDocument::Parse(
      R"({"mounts":[{"source":"x"},{"destination":"/"},{"destination":"x"}],)"
      R"("linux":{"devices":[{"type":"c"},{"path":"/dev//nvidia0"},{"path":"/dev/fuse"}]}})",
      "/b");
  EXPECT_EQ(document.Mounts().size(), 2u);
  ASSERT_TRUE(document.AddMount({"/x", "bind", "/y", {}}).ok());
  EXPECT_EQ(document.json().Find("mounts")->items().size(), 3u)
      << "only the mount at \"x\" is replaced";
  ASSERT_TRUE(document.AddDevice({.path = "/dev/nvidia0"}).ok());
  EXPECT_EQ(document.json().Find("linux")->Find("devices")->items().size(), 3u);
}

TEST(ConfigDocument, MountsThatAreNotAListAreIgnoredAndKept) {
  for (const char* text : {R"({"mounts":{}})", R"({"mounts":null})", "{}"}) {
    auto document = *ConfigDocument::Parse(text, "/b");
    EXPECT_TRUE(document.Mounts().empty());
    document.EraseMountsFrom("/b");
    EXPECT_EQ(document.json().Serialize(), text);
  }
}

TEST(ConfigDocument, AMountWithAnEmptyPathReplacesNothing) {
  auto document = *ConfigDocument::Parse(R"({"mounts":[{"destination":""}]})", "/b");
  ASSERT_TRUE(document.AddMount({"/", "bind", "/y", {}}).ok());
  EXPECT_EQ(document.json().Find("mounts")->items().size(), 2u);
}

TEST(ConfigDocument, TheRootIsAbsoluteOrInTheBundle) {
  EXPECT_EQ(Sample().RootPath().value(), "/bundle/rootfs");
  EXPECT_EQ(ConfigDocument::Parse(R"({"root":{"path":"/x"}})", "/b")->RootPath().value(), "/x");
  EXPECT_FALSE(Sample().IsRootReadOnly());
  EXPECT_TRUE(ConfigDocument::Parse(R"({"root":{"readonly":true}})", "/b")->IsRootReadOnly());
  EXPECT_FALSE(ConfigDocument::Parse(R"({"root":{"readonly":"yes"}})", "/b")->IsRootReadOnly());
}

TEST(ConfigDocument, ReadsTextAnnotationsAndFindsThemByPrefixWithExceptions) {
  const auto document =
      *ConfigDocument::Parse(R"({"annotations":{"a.x":"1","a.y":"","n":3}})", "/b");
  EXPECT_EQ(document.Annotation("a.x"), "1");
  EXPECT_EQ(document.Annotation("a.y"), "");
  EXPECT_EQ(document.Annotation("n"), std::nullopt);
  EXPECT_TRUE(document.HasAnnotationWithPrefix("a."));
  EXPECT_TRUE(document.HasAnnotationWithPrefix("a.", {"a.x"}));
  EXPECT_FALSE(document.HasAnnotationWithPrefix("a.", {"a.x", "a.y"}));
  EXPECT_FALSE(document.HasAnnotationWithPrefix("b."));
  EXPECT_FALSE(ConfigDocument::Parse("{}", "/b")->HasAnnotationWithPrefix(""));
}

TEST(ConfigDocument, ARuleForEveryGpuIsRecognized) {
  const auto allows_all = [](const std::string& rules) {
    return ConfigDocument::Parse(R"({"linux":{"resources":{"devices":[)" + rules + "]}}}", "/b")
        ->AllowsEveryGpu();
  };
  EXPECT_TRUE(allows_all(R"({"allow":false,"access":"rwm"},{"allow":true,"access":"rwm"})"));
  EXPECT_TRUE(allows_all(R"({"allow":true,"type":"a","major":-1,"minor":-1,"access":"rw"})"));
  // Docker's default rule "c *:* m" and the option --device-cgroup-rule "c *:* rmw".
  const std::string create_nodes = R"({"allow":true,"type":"c","access":"m"})";
  EXPECT_FALSE(allows_all(create_nodes));
  EXPECT_TRUE(allows_all(create_nodes + R"(,{"allow":true,"type":"c","access":"rmw"})"));
  EXPECT_TRUE(allows_all(R"({"allow":true,"type":"a","access":"mw"})"));
  EXPECT_TRUE(allows_all(R"({"allow":true,"type":"c","major":195,"access":"rwm"})"));
  EXPECT_TRUE(allows_all(R"({"allow":true,"type":"c","major":195,"minor":-1,"access":"r"})"));
  // runc opens every device for each of these.
  for (const char* all :
       {R"({"allow":true,"major":195,"access":"rwm"})",
        R"({"allow":true,"minor":3,"access":"rwm"})", R"({"allow":true,"access":"m"})"}) {
    EXPECT_TRUE(allows_all(all)) << all;
  }
  for (const char* other :
       {R"({"allow":false,"access":"rwm"})", R"({"allow":true,"type":"b","access":"rwm"})",
        R"({"allow":true,"type":"b","major":195,"access":"rwm"})",
        R"({"allow":false,"type":"c","major":195,"access":"rwm"})",
        R"({"allow":true,"type":"c","major":195,"access":"m"})",
        R"({"allow":true,"type":"c","major":195,"minor":3,"access":"rwm"})",
        R"({"allow":true,"type":"c","major":136,"access":"rwm"})",
        R"({"allow":true,"type":"c","minor":3,"access":"rwm"})", R"({"access":"rwm"})"}) {
    EXPECT_FALSE(allows_all(other)) << other;
  }
  EXPECT_FALSE(ConfigDocument::Parse("{}", "/b")->AllowsEveryGpu());
}

TEST(ConfigDocument, ErasesOnlyRulesForAllGpus) {
  constexpr char kOthers[] =
      R"({"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":136,"access":"rwm"},)"
      R"({"allow":true,"type":"c","major":195,"minor":0,"access":"rw"})";
  const auto text_of = [&](const std::string& first_rules) {
    return R"({"linux":{"resources":{"devices":[)" + first_rules + kOthers + "]}}}";
  };
  auto document = *ConfigDocument::Parse(
      text_of(R"({"allow":true,"type":"c","major":195,"access":"rwm"},)"), "/b");
  document.EraseGpuRules();
  EXPECT_EQ(document.json().Serialize(), text_of(""));
}

TEST(ConfigDocument, ErasesOnlyTheGpusOfTheEngine) {
  auto document = *ConfigDocument::Parse(
      R"({"linux":{"devices":[{"path":"/dev/nvidia0"},{"path":"/dev/nvidia12"},)"
      R"({"path":"/dev/nvidiactl"},)"
      R"({"path":"/dev/fuse"}]}})",
      "/b");
  document.EraseGpuNodes();
  EXPECT_EQ(document.json().Serialize(),
            R"({"linux":{"devices":[{"path":"/dev/nvidiactl"},{"path":"/dev/fuse"}]}})");
}

TEST(ConfigDocumentTest, AFileOfTheCgroupIsSetUnlessTheEngineHasSetIt) {
  auto document = ConfigDocument::Parse(
      R"({"linux":{"resources":{"unified":{"memory.high":"1","dmem.max":"x 1"}}}})", "/b");
  ASSERT_TRUE(document.ok());
  ASSERT_TRUE(document->SetUnified("dmem.max", "y 2").ok());
  ASSERT_TRUE(document->SetUnified("io.weight", "7").ok());
  EXPECT_EQ(document->json().Serialize(),
            R"({"linux":{"resources":{"unified":{"memory.high":"1","dmem.max":"x 1",)"
            R"("io.weight":"7"}}}})");
}

}  // namespace
}  // namespace tessera::oci
