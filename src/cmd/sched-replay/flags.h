// SPDX-License-Identifier: Apache-2.0
// The command line of sched-replay.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/placement/policy.h"

namespace tessera {

struct ReplayFlags {
  std::string nodes, pods;
  std::string policies{placement::kDefaultPolicy};
  std::string seeds = "42-51";
  std::optional<int> load;  // percent; default: 130, with --timeline 100
  int jobs = 0;             // 0: all cores
  bool json = false, csv = false;
  std::string plot;
  bool shares_by_memory = false;
  bool timeline = false, as_recorded = false, moves = false;
};

// `flags` must outlive `app`.
void AddReplayFlags(CLI::App* app, ReplayFlags* flags);

// Parses names of placement::Policies(), in any case, or "all". INVALID_ARGUMENT lists them.
Result<std::vector<std::string>> ParsePolicies(const std::string& text);
// Parses "42-51" or "1,2,7-9". INVALID_ARGUMENT: not a list of ranges, or too long.
Result<std::vector<uint64_t>> ParseSeeds(const std::string& text);

}  // namespace tessera
