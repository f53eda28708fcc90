// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/known_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/base/strings.h"

namespace tessera::sim {
namespace {

constexpr size_t kMaxSuggestions = 3;

// Number of letters to insert, remove or replace (Levenshtein).
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

const std::vector<std::string_view>& NvmlFunctions() {
  static const std::vector<std::string_view> kNames = {
#define NVML_FUNCTION(name, parameters) #name,
#include "api/nvml_functions.inc"
#undef NVML_FUNCTION
#define NVML_UNIMPLEMENTED(name) #name,
#include "src/sim/nvml/unimplemented.inc"
#undef NVML_UNIMPLEMENTED
  };
  return kNames;
}

std::vector<std::string_view> NearestNames(std::string_view text,
                                           const std::vector<std::string_view>& names) {
  const std::string wanted = ToLower(text);
  std::vector<std::pair<size_t, std::string_view>> ranked;
  for (const std::string_view name : names) {
    const std::string lower = ToLower(name);
    // A part of the name, such as "GetMemoryInfo", counts as one wrong letter.
    const bool is_part = !wanted.empty() && lower.find(wanted) != std::string::npos;
    const size_t distance = is_part && wanted != lower ? 1 : Distance(wanted, lower);
    if (distance <= lower.size() / 3) ranked.emplace_back(distance, name);
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<size_t, std::string_view>::first);
  ranked.resize(std::min(ranked.size(), kMaxSuggestions));
  std::vector<std::string_view> nearest;
  for (const auto& [distance, name] : ranked) nearest.push_back(name);
  return nearest;
}

Status CheckNvmlFunction(std::string_view name) {
  if (name == "*" || std::ranges::count(NvmlFunctions(), name) != 0) return {};
  const std::vector<std::string_view> nearest = NearestNames(name, NvmlFunctions());
  if (nearest.empty()) {
    return Error(Code::kInvalidArgument,
                 "NVML has no function \"{}\": want a name such as nvmlDeviceGetMemoryInfo, or *",
                 name);
  }
  return Error(Code::kInvalidArgument, "NVML has no function \"{}\": did you mean {}?", name,
               fmt::join(nearest, ", "));
}

Status CheckXid(uint64_t code) {
  constexpr uint64_t kCodes[] = {
#define TESSERA_XID(code, name, action) code,
#include "api/xids.inc"
#undef TESSERA_XID
  };
  if (std::ranges::binary_search(kCodes, code)) return {};
  return Error(Code::kInvalidArgument, "unknown XID {}: want one of NVIDIA's catalog: {}", code,
               fmt::join(kCodes, " "));
}

}  // namespace tessera::sim
