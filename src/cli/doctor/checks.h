// SPDX-License-Identifier: Apache-2.0
// The checks of `tessera doctor`: each recognizes one way in which GPU clusters are known to fail,
// and says what to do. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/doctor/facts.h"

namespace tessera::cli {

struct DoctorFinding {
  std::string check;    // the check's id
  bool serious = true;  // false: a note about a cluster that works
  std::string where;    // "node n1", "pod ml/train"
  std::string what;
  std::string cause;
  std::string fix;
};

// Collects the findings of one check.
class DoctorFindings {
 public:
  explicit DoctorFindings(std::string_view check) : check_(check) {}
  void Add(std::string where, std::string what, std::string cause, std::string fix) {
    found_.push_back(
        {check_, true, std::move(where), std::move(what), std::move(cause), std::move(fix)});
  }
  void AddNote(std::string where, std::string what, std::string cause, std::string fix) {
    Add(std::move(where), std::move(what), std::move(cause), std::move(fix));
    found_.back().serious = false;
  }
  std::vector<DoctorFinding> Take() { return std::move(found_); }

 private:
  const std::string check_;
  std::vector<DoctorFinding> found_;
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

}  // namespace tessera::cli
