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

struct GpuField {
  std::string_view name;   // in the header
  std::string_view alias;  // "" for none
  std::string_view unit;   // "MiB"; "" for none
  std::string_view help;
  std::string (*value)(const NvmlGpu& gpu, const NodeValues& node);
};
const std::vector<GpuField>& GpuFields();
// Fields of memory errors and repairs (error_fields.cc).
void AddErrorFields(std::vector<GpuField>* table);

struct AppField {
  std::string_view name;
  std::string_view alias;
  std::string_view unit;
  std::string_view help;
  std::string (*value)(const NvmlGpu& gpu, const ListedProcess& process, const NodeValues& node);
};
const std::vector<AppField>& AppFields();

// Fields of --query-remapped-rows, which prints one line for each GPU.
const std::vector<GpuField>& RowFields();

struct PageField {
  std::string_view name;
  std::string_view alias;
  std::string_view unit;
  std::string_view help;
  std::string (*value)(const NvmlGpu& gpu, const RetiredPage& page, const NodeValues& node);
};
const std::vector<PageField>& PageFields();

struct ClockField {
  std::string_view name;
  std::string_view alias;
  std::string_view unit;
  std::string_view help;
  std::string (*value)(const NvmlGpu& gpu, const ClockPair& clocks, const NodeValues& node);
};
const std::vector<ClockField>& ClockFields();

}  // namespace tessera::smi
