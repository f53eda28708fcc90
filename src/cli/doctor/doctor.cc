// SPDX-License-Identifier: Apache-2.0
// `tessera doctor`: runs the checks, and prints what they found.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>
#include <tuple>

#include "src/cli/doctor/checks.h"
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

Json JsonOfFinding(const DoctorFinding& finding) {
  return Json::MakeObject({{"metadata", MetadataOf("", finding.check)},
                           {"serious", Json::Bool(finding.is_serious)},
                           {"where", Json::String(finding.place)},
                           {"what", Json::String(finding.problem)},
                           {"cause", Json::String(finding.cause)},
                           {"fix", Json::String(finding.fix)}});
}

// A finding takes three lines: the place and the problem, the cause, the fix.
void AddLines(const DoctorFinding& finding, const Style& style, Listing* list) {
  const Tone tone = finding.is_serious ? Tone::kBad : Tone::kPlain;
  Json object = style.needs_objects() ? JsonOfFinding(finding) : Json();
  list->rows.push_back({object,
                        {{finding.is_serious ? "problem" : "note", tone},
                         finding.check,
                         finding.place,
                         finding.problem}});
  if (!style.shows_cells()) return;
  if (!finding.cause.empty()) {
    list->rows.push_back({object, {"", "", "", {"cause: " + finding.cause, Tone::kQuiet}}});
  }
  list->rows.push_back({object, {"", "", "", {"fix: " + finding.fix, Tone::kQuiet}}});
}

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

std::vector<DoctorCheck> AllChecks() {
  std::vector<DoctorCheck> all;
  for (const auto checks : {NodeChecks(), AgentChecks(), PodChecks(), InstallationChecks()}) {
    all.insert(all.end(), checks.begin(), checks.end());
  }
  std::ranges::sort(all, {}, [](const DoctorCheck& check) { return std::string_view(check.id); });
  return all;
}

std::vector<DoctorFinding> Diagnose(const ClusterFacts& facts) {
  std::vector<DoctorFinding> all;
  for (const DoctorCheck& check : AllChecks()) {
    DoctorFindings findings(check.id);
    check.run(facts, &findings);
    for (DoctorFinding& finding : findings.Take()) all.push_back(std::move(finding));
  }
  std::ranges::stable_sort(all, [](const DoctorFinding& a, const DoctorFinding& b) {
    return std::tie(b.is_serious, a.check, a.place) < std::tie(a.is_serious, b.check, b.place);
  });
  return all;
}

Result<std::string> ShowFindings(const std::vector<DoctorFinding>& findings, const Style& style) {
  Listing list{.kind = "Finding",
               .columns = {"KIND", "CHECK", "WHERE", "WHAT"},
               .empty_text = fmt::format("{} checks found nothing.", AllChecks().size())};
  for (const DoctorFinding& finding : findings) AddLines(finding, style, &list);
  return Print(std::move(list), style);
}

Result<std::string> ShowChecks(const Style& style) {
  Listing list{.kind = "Check", .columns = {"CHECK", "COMPLAINT"}};
  for (const DoctorCheck& check : AllChecks()) {
    list.rows.push_back({Json::MakeObject({{"metadata", MetadataOf("", check.id)},
                                           {"complaint", Json::String(check.complaint)}}),
                         {check.id, check.complaint}});
  }
  return Print(std::move(list), style);
}

Action AddDoctor(CLI::App* app) {
  auto options = std::make_shared<DoctorOptions>();
  app->add_flag("--list", options->list, "list the checks, without a cluster");
  AddListOptions(app, &options->style);
  AddClusterOptions(app, &options->cluster);
  app->footer("Exit codes: 0 no serious problem was found; 1 a serious problem was found.");
  return [options] { return RunDoctor(*options); };
}

}  // namespace tessera::cli
