// SPDX-License-Identifier: Apache-2.0
#include "src/cli/doctor/doctor.h"

namespace tessera::cli {
namespace {

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

}  // namespace

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

}  // namespace tessera::cli
