// SPDX-License-Identifier: Apache-2.0
// The command line of tessera-scheduler. A flag overrides the environment variable for the same
// option.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "src/base/status.h"
#include "src/scheduler/scheduler.h"

namespace tessera {

struct SchedulerFlags {
  scheduler::SchedulerOptions options;
  std::string memory_unit = "GiB";
  std::string quota_config_map;
  std::string log_format = "text";
  size_t max_request_mib = 0;
};

// Sets the defaults of `flags`, which must outlive `app`.
void AddSchedulerFlags(CLI::App* app, SchedulerFlags* flags);

// INVALID_ARGUMENT names the flag.
Result<scheduler::SchedulerOptions> ToOptions(const SchedulerFlags& flags);

}  // namespace tessera
