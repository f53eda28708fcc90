// SPDX-License-Identifier: Apache-2.0
// The command line of tessera-agent. Where NVIDIA's device plugin has the same flag or variable,
// the name is the same. A flag overrides its variable.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "src/agent/agent.h"

namespace tessera {

struct AgentFlags {
  agent::AgentOptions options;
  std::string binding_mode = "late";
  std::vector<std::string> shared_resources = {"gpu-mem", "vcuda"};
  std::string memory_unit = "GiB";
  std::string log_format = "text";
  int gpu_release_timeout_s = 30;
  int64_t collect_interval_ms = 1000;
  int64_t xid_window_ms = 300000;
  bool runs_supervised = false;
};

// Sets the defaults of `flags`, which must outlive `app`.
void AddAgentFlags(CLI::App* app, AgentFlags* flags);

// The options from `flags` and from the environment variables that have no flag.
agent::AgentOptions ToOptions(const AgentFlags& flags);

}  // namespace tessera
