// SPDX-License-Identifier: Apache-2.0
#include "src/cli/doctor/checks.h"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace tessera::cli {

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

}  // namespace tessera::cli
