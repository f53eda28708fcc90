// SPDX-License-Identifier: Apache-2.0
// The checks of `tessera doctor`: each recognizes one way in which GPU clusters are known to fail,
// and says what to do. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/doctor/facts.h"
#include "src/cli/output/listing.h"

namespace tessera::cli {

struct DoctorFinding {
  std::string check;       // the check's id
  bool is_serious = true;  // false: a note about a cluster that works
  std::string place;       // "node n1", "pod ml/train"
  std::string problem;
  std::string cause;
  std::string fix;
};

// Collects the findings of one check.
class DoctorFindings {
 public:
  explicit DoctorFindings(std::string_view check) : check_(check) {}
  void Add(std::string place, std::string problem, std::string cause, std::string fix) {
    findings_.push_back(
        {check_, true, std::move(place), std::move(problem), std::move(cause), std::move(fix)});
  }
  void AddNote(std::string place, std::string problem, std::string cause, std::string fix) {
    Add(std::move(place), std::move(problem), std::move(cause), std::move(fix));
    findings_.back().is_serious = false;
  }
  std::vector<DoctorFinding> Take() { return std::move(findings_); }

 private:
  const std::string check_;
  std::vector<DoctorFinding> findings_;
};

struct DoctorCheck {
  const char* id;
  const char* complaint;  // the symptom as users describe it
  void (*run)(const ClusterFacts& facts, DoctorFindings* findings);
};

// The checks by the objects that they examine; AllChecks returns all checks, sorted by id.
std::span<const DoctorCheck> NodeChecks();
std::span<const DoctorCheck> AgentChecks();
std::span<const DoctorCheck> PodChecks();
std::span<const DoctorCheck> InstallationChecks();
std::vector<DoctorCheck> AllChecks();

// Runs all checks: serious findings first, then by check and place.
std::vector<DoctorFinding> Diagnose(const ClusterFacts& facts);

// What `tessera doctor` prints.
Result<std::string> ShowFindings(const std::vector<DoctorFinding>& findings, const Style& style);
// The list of all checks.
Result<std::string> ShowChecks(const Style& style);

}  // namespace tessera::cli
