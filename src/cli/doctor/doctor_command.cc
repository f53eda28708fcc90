// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "src/cli/doctor/doctor.h"
#include "src/cli/options.h"
#include "src/cli/verbs.h"

namespace tessera::cli {
namespace {

constexpr int kExitFound = 1;

struct DoctorOptions {
  ClusterOptions cluster;
  StyleOptions style;
  bool list = false;
};

int RunDoctor(const DoctorOptions& options) {
  const Result<Style> style = StyleOf(options.style);
  if (!style.ok()) return Fail(style.status());
  if (options.list) {
    const Result<std::string> text = ShowChecks(*style);
    return text.ok() ? PrintOut(*text) : Fail(text.status());
  }
  Result<kube::Config> config = ConfigOf(options.cluster);
  if (!config.ok()) return Fail(config.status());
  ClusterClient api(*std::move(config), options.cluster.timeout());
  const auto facts = ReadFacts(api);
  if (!facts.ok()) return Fail(facts.status());
  const std::vector<DoctorFinding> findings = Diagnose(**facts);
  const Result<std::string> text = ShowFindings(findings, *style);
  if (!text.ok()) return Fail(text.status());
  if (const int failed = PrintOut(*text)) return failed;
  return std::ranges::any_of(findings, &DoctorFinding::is_serious) ? kExitFound : 0;
}

}  // namespace

Action AddDoctor(CLI::App* app) {
  auto options = std::make_shared<DoctorOptions>();
  app->add_flag("--list", options->list, "list the checks, without a cluster");
  AddListOptions(app, &options->style);
  AddClusterOptions(app, &options->cluster);
  app->footer("Exit codes: 0 no serious problem was found; 1 a serious problem was found.");
  return [options] { return RunDoctor(*options); };
}

}  // namespace tessera::cli
