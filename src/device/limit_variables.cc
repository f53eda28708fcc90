// SPDX-License-Identifier: Apache-2.0
#include "src/device/limit_variables.h"

#include <limits>
#include <optional>

#include "src/base/strings.h"

namespace tessera::device {
namespace {

constexpr std::string_view kMemoryVariable = "CUDA_DEVICE_MEMORY_LIMIT";
constexpr std::string_view kComputeVariable = "CUDA_DEVICE_SM_LIMIT";

// The index of the GPU in the variable's name; nullopt for `base` itself, which applies to all
// GPUs. NOT_FOUND if the name is another variable.
Result<std::optional<size_t>> GpuOf(std::string_view name, std::string_view base) {
  const Status other(Code::kNotFound, "another variable");
  if (!name.starts_with(base)) return other;
  name.remove_prefix(base.size());
  if (name.empty()) return std::optional<size_t>();
  if (name[0] != '_') return other;
  const Result<int64_t> number = ParseInt(name.substr(1));
  if (!number.ok() || *number < 0) return other;
  return std::optional<size_t>(static_cast<size_t>(*number));
}

Result<int64_t> ParseSize(std::string_view text) {
  constexpr std::string_view kUnits = "kKmMgG";  // each unit is 1024 times the one before
  const size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  const int shift = unit == kUnits.npos ? 0 : 10 * static_cast<int>(1 + unit / 2);
  if (shift != 0) text.remove_suffix(1);
  const Result<int64_t> number = ParseInt(text);
  if (number.ok() && *number >= 0 && *number <= std::numeric_limits<int64_t>::max() >> shift) {
    return *number << shift;
  }
  return Status(Code::kInvalidArgument, "want bytes, or a number with k, m or g, such as 3g");
}

Result<int64_t> ParseHundredthsOfGpu(std::string_view text) {
  const Result<int64_t> hundredths = ParseInt(text);
  if (hundredths.ok() && *hundredths >= 0) return *hundredths < 100 ? *hundredths * 10 : 0;
  return Status(Code::kInvalidArgument, "want hundredths of a GPU, such as 30");
}

template <typename Amount>
Result<GpuLimits<Amount>> LimitsOf(const StringMap& variables,
                                   const std::vector<DeviceShare>& shares, std::string_view base,
                                   Result<int64_t> (*parse)(std::string_view)) {
  GpuLimits<Amount> limits;
  // The map has the variable for all GPUs before the variables for one GPU, and the last match
  // counts.
  for (const auto& [name, value] : variables) {
    const auto gpu = GpuOf(name, base);
    if (!gpu.ok() || (*gpu && **gpu >= shares.size())) continue;
    ASSIGN_OR_RETURN(const int64_t amount,
                     parse(Trim(value)).Annotate(fmt::format("{}={:.64}", name, value)));
    if (amount == 0) continue;
    limits.push_back({*gpu ? shares[**gpu].uuid : "", Amount(amount)});
  }
  return limits;
}

}  // namespace

bool IsLimitVariable(std::string_view name) {
  return GpuOf(name, kMemoryVariable).ok() || GpuOf(name, kComputeVariable).ok();
}

Result<GpuLimits<Bytes>> MemoryLimitsOf(const StringMap& variables,
                                        const std::vector<DeviceShare>& shares) {
  return LimitsOf<Bytes>(variables, shares, kMemoryVariable, ParseSize);
}

Result<GpuLimits<MilliGpu>> ComputeLimitsOf(const StringMap& variables,
                                            const std::vector<DeviceShare>& shares) {
  return LimitsOf<MilliGpu>(variables, shares, kComputeVariable, ParseHundredthsOfGpu);
}

}  // namespace tessera::device
