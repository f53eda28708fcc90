// SPDX-License-Identifier: Apache-2.0
#include "src/device/limit_annotations.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/quantity.h"

namespace tessera::device {
namespace {

// The driver allocates memory in blocks of this size.
constexpr Bytes kDriverBlock{int64_t{2} << 20};

Result<Bytes> ParseBytes(std::string_view text) {
  ASSIGN_OR_RETURN(const Bytes memory, ParseMemory(text));
  if (memory >= kDriverBlock) return memory;
  return Status(Code::kInvalidArgument, "want at least 2Mi, such as 8Gi");
}

Result<MilliGpu> ParseHundredths(std::string_view text) {
  const auto hundredths = ParseWholeQuantity(text);
  if (hundredths.ok() && *hundredths >= 1 && *hundredths <= 100) return MilliGpu(*hundredths * 10);
  return Status(Code::kInvalidArgument, "want 1 to 100 hundredths of a GPU, such as 20");
}

template <typename Amount>
Result<GpuLimits<Amount>> ParseLimits(std::string_view text,
                                      Result<Amount> (*parse)(std::string_view)) {
  GpuLimits<Amount> limits;
  if (text.empty()) return limits;
  for (std::string_view entry : Split(text, ',')) {
    entry = Trim(entry);
    const size_t equals = entry.find('=');
    const bool has_name = equals != std::string_view::npos;
    if (equals == 0) {
      return Error(Code::kInvalidArgument,
                   "\"{}\": want a container or the UUID of a GPU before \"=\"", entry);
    }
    AnnotatedLimit<Amount> limit;
    if (has_name) limit.applies_to = entry.substr(0, equals);
    ASSIGN_OR_RETURN(
        limit.amount,
        parse(has_name ? entry.substr(equals + 1) : entry).Annotate(fmt::format("\"{}\"", entry)));
    if (std::ranges::count(limits, limit.applies_to, &AnnotatedLimit<Amount>::applies_to) > 0) {
      return Error(Code::kInvalidArgument, "\"{}\": {} already has a limit in this list: want one",
                   entry, has_name ? limit.applies_to : "each container");
    }
    limits.push_back(std::move(limit));
  }
  return limits;
}

}  // namespace

bool IsGpuUuid(std::string_view applies_to) {
  return applies_to.starts_with("GPU-") || applies_to.starts_with("MIG-");
}

Result<GpuLimits<Bytes>> ParseMemoryLimits(std::string_view text) {
  return ParseLimits<Bytes>(text, ParseBytes);
}

Result<GpuLimits<MilliGpu>> ParseComputeLimits(std::string_view text) {
  return ParseLimits<MilliGpu>(text, ParseHundredths);
}

Status CheckComputeClass(std::string_view text) {
  if (text == names::kComputeClassHigh || text == names::kComputeClassNormal ||
      text == names::kComputeClassLow) {
    return Status::Ok();
  }
  return Error(Code::kInvalidArgument, "\"{}\" is none of {}, {}, {}", text,
               names::kComputeClassHigh, names::kComputeClassNormal, names::kComputeClassLow);
}

}  // namespace tessera::device
