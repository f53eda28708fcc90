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
  std::string nodes_file, pods_file;
  std::string policies{placement::kDefaultPolicy};
  std::string seeds = "42-51";
  std::optional<int> load_percent;  // default: 130, with --timeline 100
  int jobs = 0;                     // 0: all cores
  bool prints_json = false, prints_csv = false;
  std::string plot_file;
  bool shares_by_memory = false;
  bool uses_timeline = false, as_recorded = false, moves_pods = false;
};

// `flags` must outlive `app`.
void AddReplayFlags(CLI::App* app, ReplayFlags* flags);

// Parses names of placement::Policies(), in any case, or "all". INVALID_ARGUMENT lists the
// policies.
Result<std::vector<std::string>> ParsePolicies(const std::string& text);
// Parses "42-51" or "1,2,7-9". INVALID_ARGUMENT: not a list of ranges, or too long.
Result<std::vector<uint64_t>> ParseSeeds(const std::string& text);

}  // namespace tessera
