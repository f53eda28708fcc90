// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/strings.h"
#include "src/cli/install/installer.h"
#include "src/cli/install/operator_installer.h"
#include "src/cli/install/spec_flags.h"
#include "src/cli/install/uninstaller.h"
#include "src/cli/options.h"
#include "src/cli/output/text.h"
#include "src/cli/status.h"
#include "src/cli/verbs.h"
#include "src/components/objects.h"
#include "src/components/settings.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

// Timeout of each request to the API server.
constexpr Duration kRequestTimeout = std::chrono::seconds(30);

struct InstallFlags {
  ClusterOptions cluster;
  SpecOptions spec;
  std::string dry_run;  // "": none; "server", and for an installation "client" or "auto"
  std::string output;
  bool wait = false;
  bool force = false;
  bool reset = false;
  bool with_operator = false;
};
using SharedFlags = std::shared_ptr<InstallFlags>;

SharedFlags MakeFlags() {
  auto flags = std::make_shared<InstallFlags>();
  flags->cluster.timeout_s = 120;  // of each wait
  return flags;
}

std::string CheckFormat(const std::string& text) {
  if (text == "yaml" || text == "json" || text == "name") return "";
  return fmt::format("invalid format \"{}\": want yaml, json or name", text);
}

void AddSettingsFlags(CLI::App* app, InstallFlags* flags) {
  AddSpecOptions(app, &flags->spec);
  app->add_option("-o,--output", flags->output,
                  "with --dry-run: print the objects as yaml or json, or their names")
      ->check(CLI::Validator(CheckFormat, ""))
      ->option_text("FORMAT");
  app->add_flag("--wait", flags->wait, "wait until all pods are ready, at most --timeout");
  AddClusterOptions(app, &flags->cluster);
}

// `modes`: the values of the flag, as in kubectl. The flag without a value means the first mode.
void AddDryRun(CLI::App* app, const std::vector<std::string>& modes, InstallFlags* flags,
               const char* help) {
  app->add_flag(fmt::format("--dry-run{{{}}}", modes.front()), flags->dry_run, help)
      ->check(CLI::IsMember(modes))
      ->option_text(" ");
}

int ExitCodeOf(const Status& status) {
  std::fflush(stdout);
  if (status.code() == Code::kPermissionDenied) {
    return Fail(Error(status.code(),
                      "{}: this command needs the rights of ClusterRole cluster-admin",
                      status.message()));
  }
  return status.ok() ? 0 : Fail(status);
}

// "deployment.apps/tessera-scheduler", as kubectl prints it.
std::string KubectlName(const ObjectId& id) {
  const size_t slash = id.api_version.find('/');
  const std::string group = slash == std::string::npos ? "" : "." + id.api_version.substr(0, slash);
  return fmt::format("{}{}/{}", ToLower(id.kind), group, id.name);
}

// Prints a list in JSON, or documents in YAML, which kubectl can apply, or the names.
void PrintObjects(const std::vector<Json>& objects, const std::string& format) {
  if (format == "name") {
    for (const Json& object : objects) fmt::print("{}\n", KubectlName(IdOf(object)));
    return;
  }
  if (format == "json") {
    const Json list = Json::MakeObject({{"apiVersion", Json::String("v1")},
                                        {"kind", Json::String("List")},
                                        {"items", Json::MakeArray(objects)}});
    fmt::print("{}\n", list.Pretty());
    return;
  }
  for (const Json& object : objects) fmt::print("---\n{}", WriteYaml(object));
}

InstallWaits WaitsOf(const InstallFlags& flags) {
  return {.timeout = flags.cluster.timeout(), .wait_until_ready = flags.wait};
}

Status CheckOutput(const InstallFlags& flags) {
  if (flags.output.empty() || !flags.dry_run.empty()) return Status::Ok();
  return Error(Code::kInvalidArgument, "-o {}: only --dry-run prints objects: add it",
               flags.output);
}

// Prints warnings on standard error, because standard output may be a manifest.
Result<Json> ReadSettings(const SpecOptions& options) {
  ASSIGN_OR_RETURN(Json spec, ReadSpec(options.files, options.assignments));
  for (const std::string& line : components::IgnoredValues(spec)) {
    fmt::print(stderr, "tessera: without effect: {}\n", line);
  }
  return spec;
}

// Checks the objects that the command applies and, with --operator, those that the operator applies
// later.
Status CheckObjects(const InstallFlags& flags, const Json& spec, std::vector<Json> objects) {
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(flags.cluster));
  ClusterClient api(std::move(config), kRequestTimeout);
  if (flags.with_operator) {
    ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
    for (Json& object : components::RenderObjects(settings)) objects.push_back(std::move(object));
  }
  return CheckByServer(api, objects);
}

Status DryRunInstall(const InstallFlags& flags, const Json& spec) {
  ASSIGN_OR_RETURN(const std::vector<Json> objects,
                   flags.with_operator ? OperatorObjects(spec) : ObjectsToInstall(spec));
  if (flags.dry_run != "client") {
    const Status checked = CheckObjects(flags, spec, objects);
    const bool is_fatal = flags.dry_run == "server" || checked.code() == Code::kInvalidArgument;
    if (!checked.ok() && is_fatal) return checked;
    if (!checked.ok()) {
      fmt::print(stderr, "tessera: no API server has checked the objects: {}\n",
                 Printable(checked.message()));
    }
  }
  PrintObjects(objects, flags.output);
  return Status::Ok();
}

Status Install(const InstallFlags& flags) {
  RETURN_IF_ERROR(CheckOutput(flags));
  ASSIGN_OR_RETURN(const Json spec, ReadSettings(flags.spec));
  if (!flags.dry_run.empty()) return DryRunInstall(flags, spec);
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(flags.cluster));
  ClusterClient api(std::move(config), kRequestTimeout);
  if (flags.with_operator) {
    RETURN_IF_ERROR(OperatorInstaller(api, stdout, WaitsOf(flags)).Install(spec, flags.force));
  } else {
    RETURN_IF_ERROR(Installer(api, stdout, WaitsOf(flags)).Install(spec, flags.force));
  }
  if (flags.force) return Status::Ok();  // kube-scheduler may be connected already
  fmt::print(
      "kube-scheduler does not call Tessera yet: {}.\n\"tessera status\" shows whether all "
      "works.\n",
      kConnectKubeScheduler);
  return Status::Ok();
}

Status Upgrade(const InstallFlags& flags) {
  RETURN_IF_ERROR(CheckOutput(flags));
  ASSIGN_OR_RETURN(const Json changes, ReadSettings(flags.spec));
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(flags.cluster));
  ClusterClient api(std::move(config), kRequestTimeout);
  ASSIGN_OR_RETURN(const std::optional<Json> resource, api.Find(TesseraResourceId()));
  if (!flags.output.empty()) {
    if (resource) {
      const Json* stored = flags.reset ? nullptr : resource->Find("spec");
      ASSIGN_OR_RETURN(const std::vector<Json> objects,
                       OperatorObjects(stored ? CombineSpecs(*stored, changes) : changes));
      PrintObjects(objects, flags.output);
      return Status::Ok();
    }
    ASSIGN_OR_RETURN(const std::optional<InstallationRecord> before, FindInstallation(api));
    const Json stored = before && !flags.reset ? before->spec : Json::MakeObject();
    ASSIGN_OR_RETURN(const std::vector<Json> objects,
                     ObjectsToInstall(CombineSpecs(stored, changes)));
    PrintObjects(objects, flags.output);
    return Status::Ok();
  }
  if (resource) {
    return OperatorInstaller(api, stdout, WaitsOf(flags))
        .Upgrade(*resource, changes, flags.reset, !flags.dry_run.empty());
  }
  return Installer(api, stdout, WaitsOf(flags))
      .Upgrade(changes, flags.reset, !flags.dry_run.empty());
}

Status Uninstall(const InstallFlags& flags) {
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(flags.cluster));
  ClusterClient api(std::move(config), kRequestTimeout);
  return Uninstaller(api, stdout,
                     {.dry_run = !flags.dry_run.empty(),
                      .force = flags.force,
                      .wait_timeout = flags.cluster.timeout()})
      .Run();
}

}  // namespace

Action AddInstall(CLI::App* app) {
  const SharedFlags flags = MakeFlags();
  AddSettingsFlags(app, flags.get());
  AddDryRun(app, {"auto", "client", "server"}, flags.get(),
            "print the objects, and change nothing. =server: only if the API server accepts them; "
            "=client: without the API server; no value: like =server if the API server can be "
            "reached");
  app->add_flag("--operator", flags->with_operator,
                "install the operator and its resource; the operator installs all other objects");
  app->add_flag("--force", flags->force,
                "replace the settings of an earlier installation, by this command or by Helm; with "
                "--operator: only of an installation by the operator");
  return [flags] { return ExitCodeOf(Install(*flags)); };
}

Action AddUpgrade(CLI::App* app) {
  const SharedFlags flags = MakeFlags();
  AddSettingsFlags(app, flags.get());
  AddDryRun(app, {"server"}, flags.get(), "print what would change, and change nothing");
  app->add_flag("--reset", flags->reset,
                "drop the stored settings: a setting that is not given gets its default");
  return [flags] { return ExitCodeOf(Upgrade(*flags)); };
}

Action AddUninstall(CLI::App* app) {
  const SharedFlags flags = MakeFlags();
  AddDryRun(app, {"server"}, flags.get(), "print what would be removed, and remove nothing");
  app->add_flag("--force", flags->force,
                "also while pods hold GPUs (they keep running), and also if Helm has installed "
                "Tessera");
  AddClusterOptions(app, &flags->cluster);
  return [flags] { return ExitCodeOf(Uninstall(*flags)); };
}

}  // namespace tessera::cli
