// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/verbs.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/install/installer.h"
#include "src/cli/install/spec_flags.h"
#include "src/cli/install/uninstaller.h"
#include "src/cli/session.h"
#include "src/cli/text.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

// A request of a command is answered in this time, or the API server does not answer.
constexpr Duration kRequestPatience = std::chrono::seconds(30);

struct InstallFlags {
  std::string kubeconfig, context;
  std::vector<std::string> files, assignments;
  bool dry_run = false;
  std::string output;
  bool wait = false;
  int timeout_s = 120;
  bool force = false;
  bool reset = false;
};
using Flags = std::shared_ptr<InstallFlags>;

void AddClusterFlags(CLI::App* app, InstallFlags* flags) {
  app->add_option("--kubeconfig", flags->kubeconfig,
                  "default: $KUBECONFIG, ~/.kube/config, the pod's service account");
  app->add_option("--context", flags->context,
                  "context of the kubeconfig; default: the current one");
}

void AddTimeout(CLI::App* app, InstallFlags* flags, const char* help) {
  app->add_option("--timeout", flags->timeout_s, help)
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
}

std::string CheckFormat(const std::string& text) {
  if (text == "yaml" || text == "json") return "";
  return fmt::format("invalid format \"{}\": want yaml or json", text);
}

void AddSettingsFlags(CLI::App* app, InstallFlags* flags) {
  app->add_option("-f,--values", flags->files,
                  "YAML file with settings, as of the chart; several are merged")
      ->option_text("FILE");
  app->add_option("--set", flags->assignments,
                  "one setting, or several with commas: scheduler.replicas=3,limits.failOpen={a,b}")
      ->option_text("NAME=VALUE");
  app->add_option("-o,--output", flags->output, "with --dry-run: print the objects as yaml or json")
      ->check(CLI::Validator(CheckFormat, ""))
      ->option_text("FORMAT");
  app->add_flag("--wait", flags->wait, "wait until all pods are ready, at most --timeout");
  AddTimeout(app, flags, "seconds to wait");
  AddClusterFlags(app, flags);
}

int ExitCodeOf(const Status& status) {
  if (status.ok()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "tessera: %s\n", Printable(status.message()).c_str());
  return InfoOf(status.code()).exit_code;
}

// kubectl applies both: a list in JSON, documents in YAML.
void PrintObjects(const std::vector<Json>& objects, const std::string& format) {
  if (format == "json") {
    const Json list = Json::MakeObject({{"apiVersion", Json::String("v1")},
                                        {"kind", Json::String("List")},
                                        {"items", Json::MakeArray(objects)}});
    fmt::print("{}\n", list.Pretty());
    return;
  }
  for (const Json& object : objects) fmt::print("---\n{}", WriteYaml(object));
}

Result<kube::Config> ConfigOf(const InstallFlags& flags) {
  return FindClusterConfig(flags.kubeconfig, flags.context, ::getenv);
}

std::optional<Duration> PatienceOf(const InstallFlags& flags) {
  if (!flags.wait) return std::nullopt;
  return std::chrono::seconds(flags.timeout_s);
}

Status CheckOutput(const InstallFlags& flags) {
  if (flags.output.empty() || flags.dry_run) return Status::Ok();
  return Error(Code::kInvalidArgument, "-o {}: only --dry-run prints objects: add it",
               flags.output);
}

Status Install(const InstallFlags& flags) {
  RETURN_IF_ERROR(CheckOutput(flags));
  ASSIGN_OR_RETURN(const Json spec, ReadSpec(flags.files, flags.assignments));
  if (flags.dry_run) {
    ASSIGN_OR_RETURN(const std::vector<Json> objects, ObjectsToInstall(spec));
    PrintObjects(objects, flags.output);
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(flags));
  InstallApi api(std::move(config), kRequestPatience);
  RETURN_IF_ERROR(Installer(api, stdout, PatienceOf(flags)).Install(spec, flags.force));
  fmt::print(
      "kube-scheduler does not call Tessera until its configuration names the extender "
      "(docs/tasks/connect-kube-scheduler.md).\n\"tessera status\" shows whether all works.\n");
  return Status::Ok();
}

Status Upgrade(const InstallFlags& flags) {
  RETURN_IF_ERROR(CheckOutput(flags));
  ASSIGN_OR_RETURN(const Json changes, ReadSpec(flags.files, flags.assignments));
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(flags));
  InstallApi api(std::move(config), kRequestPatience);
  if (!flags.output.empty()) {
    ASSIGN_OR_RETURN(const std::optional<Installation> before, FindInstallation(api));
    const Json stored = before && !flags.reset ? before->spec : Json::MakeObject();
    ASSIGN_OR_RETURN(const std::vector<Json> objects,
                     ObjectsToInstall(CombineSpecs(stored, changes)));
    PrintObjects(objects, flags.output);
    return Status::Ok();
  }
  return Installer(api, stdout, PatienceOf(flags)).Upgrade(changes, flags.reset, flags.dry_run);
}

Status Uninstall(const InstallFlags& flags) {
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(flags));
  InstallApi api(std::move(config), kRequestPatience);
  return Uninstaller(api, stdout,
                     {.dry_run = flags.dry_run,
                      .force = flags.force,
                      .patience = std::chrono::seconds(flags.timeout_s)})
      .Run();
}

}  // namespace

std::function<int()> AddInstall(CLI::App* app) {
  const Flags flags = std::make_shared<InstallFlags>();
  AddSettingsFlags(app, flags.get());
  app->add_flag("--dry-run", flags->dry_run, "print the objects, and do not ask the cluster");
  app->add_flag("--force", flags->force,
                "also where Tessera is installed, by this command or by Helm: replace its settings");
  return [flags] { return ExitCodeOf(Install(*flags)); };
}

std::function<int()> AddUpgrade(CLI::App* app) {
  const Flags flags = std::make_shared<InstallFlags>();
  AddSettingsFlags(app, flags.get());
  app->add_flag("--dry-run", flags->dry_run, "print what would change, and change nothing");
  app->add_flag("--reset", flags->reset,
                "forget the settings that are stored: those not given have their defaults");
  return [flags] { return ExitCodeOf(Upgrade(*flags)); };
}

std::function<int()> AddUninstall(CLI::App* app) {
  const Flags flags = std::make_shared<InstallFlags>();
  app->add_flag("--dry-run", flags->dry_run, "print what would be removed, and remove nothing");
  app->add_flag("--force", flags->force,
                "also while pods have GPUs, which go on, and what a release of Helm has installed");
  AddTimeout(app, flags.get(), "seconds for each thing that is waited for");
  AddClusterFlags(app, flags.get());
  return [flags] { return ExitCodeOf(Uninstall(*flags)); };
}

}  // namespace tessera::cli
