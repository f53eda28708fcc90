// SPDX-License-Identifier: Apache-2.0
// `tessera migrate`: shows a plan, and installs Tessera after a confirmation.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/cli/install/installer.h"
#include "src/cli/install/spec_flags.h"
#include "src/cli/migrate/migration.h"
#include "src/cli/options.h"
#include "src/cli/output/text.h"
#include "src/cli/verbs.h"

namespace tessera::cli {
namespace {

constexpr Duration kMigrateRequestTimeout = std::chrono::seconds(30);

struct MigrateOptions {
  ClusterOptions cluster;
  StyleOptions style;
  SpecOptions spec;
  bool dry_run = false;
  bool yes = false;
  bool wait = false;
};

Result<MigrationFacts> ReadMigrationFacts(ClusterClient& api) {
  MigrationFacts facts;
  Result<std::vector<Json>> sets = std::vector<Json>(), pods = std::vector<Json>();
  Result<std::vector<Json>> nodes = std::vector<Json>();
  ASSIGN_OR_RETURN(facts.policies, api.List("nvidia.com/v1", "ClusterPolicy", ""));
  api.ReadList({.type = kube::kDaemonSets}, &sets);
  api.ReadList({.type = kube::kPods}, &pods);
  api.ReadList({.type = kube::kNodes}, &nodes);
  api.Wait();
  RETURN_IF_ERROR(sets.status().Annotate("cannot list DaemonSets of all namespaces"));
  RETURN_IF_ERROR(pods.status().Annotate("cannot list pods of all namespaces"));
  RETURN_IF_ERROR(nodes.status().Annotate("cannot list nodes"));
  facts.daemon_sets = *std::move(sets);
  facts.pods = *std::move(pods);
  facts.nodes = *std::move(nodes);
  return facts;
}

Status CheckObstacles(const Migration& migration) {
  if (migration.obstacles.empty()) return Status::Ok();
  return Error(Code::kFailedPrecondition, "{}", fmt::join(migration.obstacles, "; "));
}

Status Confirm(const MigrateOptions& options) {
  if (options.yes) return Status::Ok();
  if (::isatty(STDIN_FILENO) != 1) {
    return Error(Code::kInvalidArgument,
                 "nothing is applied without a confirmation: add --yes, or --dry-run for the plan "
                 "alone");
  }
  fmt::print("Apply this? [y/N] ");
  std::fflush(stdout);
  char answer[16] = {};
  if (std::fgets(answer, sizeof(answer), stdin) != nullptr && (*answer == 'y' || *answer == 'Y')) {
    return Status::Ok();
  }
  return Error(Code::kAborted, "nothing was applied");
}

Status Migrate(const MigrateOptions& options, const Style& style) {
  if (!style.shows_cells() && !options.dry_run) {
    return Error(Code::kInvalidArgument, "-o {}: only --dry-run prints the resource alone: add it",
                 options.style.output);
  }
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(options.cluster));
  ClusterClient api(std::move(config), kMigrateRequestTimeout);
  ASSIGN_OR_RETURN(const MigrationFacts facts, ReadMigrationFacts(api));
  ASSIGN_OR_RETURN(const Json overrides, ReadSpec(options.spec.files, options.spec.assignments));
  ASSIGN_OR_RETURN(const Migration migration, PlanOf(facts, overrides));
  ASSIGN_OR_RETURN(const std::string text, ShowMigration(migration, style));
  if (PrintOut(text) != 0) return Error(Code::kUnavailable, "the plan cannot be printed");
  Installer installer(api, stdout,
                      {.timeout = options.cluster.timeout(), .wait_until_ready = options.wait});
  const Status nothing_installed = installer.CheckNothingInstalled();
  // A plan needs fewer rights than an installation.
  if (options.dry_run && nothing_installed.code() == Code::kPermissionDenied) return Status::Ok();
  RETURN_IF_ERROR(nothing_installed);
  if (options.dry_run) return Status::Ok();
  RETURN_IF_ERROR(CheckObstacles(migration));
  RETURN_IF_ERROR(Confirm(options));
  return installer.Install(*migration.resource.Find("spec"), /*force=*/false);
}

int RunMigrate(const MigrateOptions& options) {
  const Result<Style> style = StyleOf(options.style);
  if (!style.ok()) return Fail(style.status());
  const Status status = Migrate(options, *style);
  std::fflush(stdout);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace

Action AddMigrate(CLI::App* app) {
  auto options = std::make_shared<MigrateOptions>();
  options->cluster.timeout_s = 120;  // of --wait
  AddSpecOptions(app, &options->spec);
  app->add_flag("--dry-run", options->dry_run, "print the plan, and change nothing");
  app->add_flag("-y,--yes", options->yes, "apply the plan without asking");
  app->add_flag("--wait", options->wait, "wait until all pods are ready, at most --timeout");
  app->add_option("-o,--output", options->style.output,
                  "table, or wide; with --dry-run also json, yaml or jsonpath=TEMPLATE of the "
                  "resource Tessera with the settings")
      ->option_text("FORMAT");
  AddClusterOptions(app, &options->cluster);
  return [options] { return RunMigrate(*options); };
}

}  // namespace tessera::cli
