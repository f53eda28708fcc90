// SPDX-License-Identifier: Apache-2.0
// The tables of fields that --query-gpu and the other queries know. Values come without their
// unit; a value that the driver does not give is kNotAvailable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/gpu.h"
#include "src/sim/smi/query.h"

namespace tessera::smi {

struct GpuField {
  std::string_view name;   // the header's
  std::string_view alias;  // "" for none
  std::string_view unit;   // "MiB"; "" for none
  std::string_view help;
  std::string (*value)(const Gpu& gpu, const NodeFacts& node);
};
const std::vector<GpuField>& GpuFields();
// Those about errors of the memory and what was done about them (error_fields.cc).
void AddErrorFields(std::vector<GpuField>* table);

struct AppField {
  std::string_view name;
  std::string_view alias;
  std::string_view unit;
  std::string_view help;
  std::string (*value)(const Gpu& gpu, const Process& process, const NodeFacts& node);
};
const std::vector<AppField>& AppFields();

// One line for a GPU, with all its remapped rows.
const std::vector<GpuField>& RowFields();

struct PageField {
  std::string_view name;
  std::string_view alias;
  std::string_view unit;
  std::string_view help;
  std::string (*value)(const Gpu& gpu, const RetiredPage& page, const NodeFacts& node);
};
const std::vector<PageField>& PageFields();

struct ClockField {
  std::string_view name;
  std::string_view alias;
  std::string_view unit;
  std::string_view help;
  std::string (*value)(const Gpu& gpu, const ClockPair& clocks, const NodeFacts& node);
};
const std::vector<ClockField>& ClockFields();

}  // namespace tessera::smi
