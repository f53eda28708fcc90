// SPDX-License-Identifier: Apache-2.0
// The tables of fields of --query-gpu and the other queries. Values have no unit; a value that the
// driver does not provide is kNotAvailable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/gpu.h"
#include "src/sim/smi/query.h"

namespace tessera::smi {

// The subject of one line of output: a GPU, and in some queries one of its processes, retired pages
// or supported clocks.
struct QueryLine {
  const NvmlGpu& gpu;
  const NodeValues& node;
  ListedProcess process;
  RetiredPage page;
  ClockPair clocks;
};

struct QueryField {
  std::string_view name;   // in the header
  std::string_view alias;  // "" for none
  std::string_view unit;   // "MiB"; "" for none
  std::string_view help;
  std::string (*value)(const QueryLine& line);
};

// The value of a field as one expression of the GPU `g` or of the `line`.
#define OF_GPU(...)                               \
  [](const QueryLine& line) -> std::string {      \
    [[maybe_unused]] const NvmlGpu& g = line.gpu; \
    return __VA_ARGS__;                           \
  }
#define OF_LINE(...) [](const QueryLine& line) -> std::string { return __VA_ARGS__; }

const std::vector<QueryField>& GpuFields();
// Fields of memory errors and repairs (error_fields.cc).
void AddErrorFields(std::vector<QueryField>* table);

const std::vector<QueryField>& AppFields();
// Fields of --query-remapped-rows, which prints one line for each GPU.
const std::vector<QueryField>& RowFields();
const std::vector<QueryField>& PageFields();
const std::vector<QueryField>& ClockFields();

}  // namespace tessera::smi
