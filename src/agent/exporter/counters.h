// SPDX-License-Identifier: Apache-2.0
// The fields that are served, with type and help, as in dcgm-exporter's file of counters. A line is
//
//   DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).
//
// Lines that begin with # are comments. A column may stand in double quotes; "" inside is one
// quote. The type `label` makes the field a label of all series of its GPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/agent/exporter/fields.h"
#include "src/base/status.h"

namespace tessera::agent {

struct CounterSpec {
  const Field* field = nullptr;
  std::string name;  // the older or the newer name, as in the file
  std::string type;
  std::string help;

  bool is_label() const { return type == "label"; }
};
using CounterSpecs = std::vector<CounterSpec>;

// The counters that dcgm-exporter serves without a file.
CounterSpecs DefaultCounters();

// INVALID_ARGUMENT names `file`, the line and what to do. Accepts fields of DCGM for which the
// exporter has no value.
Result<CounterSpecs> ParseCounters(std::string_view text, std::string_view file);

// Returns DefaultCounters if `path` is empty. An error while reading the file names the flag
// --collectors. Logs the fields that have no value.
Result<CounterSpecs> LoadCounters(const std::string& path);

}  // namespace tessera::agent
