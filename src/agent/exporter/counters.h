// SPDX-License-Identifier: Apache-2.0
// Which fields are served, under which type and help: dcgm-exporter's file of counters. A line is
//
//   DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).
//
// Lines that begin with # are comments. A column may stand in double quotes; "" inside is one
// quote. The type `label` makes the field a label of all series of its GPU. Threads: values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/agent/exporter/fields.h"
#include "src/base/status.h"

namespace tessera::agent {

struct CounterSpec {
  const Field* field = nullptr;
  std::string name;  // as the file spells it: the older or the newer one
  std::string type;
  std::string help;

  bool is_label() const { return type == "label"; }
};
using CounterSpecs = std::vector<CounterSpec>;

// Those that dcgm-exporter serves without a file of its own.
CounterSpecs DefaultCounters();

// INVALID_ARGUMENT names `file`, the line and what to do. Fields of DCGM that have no value here
// are accepted.
Result<CounterSpecs> ParseCounters(std::string_view text, std::string_view file);

// "": DefaultCounters. Errors of reading name --collectors. The log says which fields have no
// value.
Result<CounterSpecs> LoadCounters(const std::string& path);

}  // namespace tessera::agent
