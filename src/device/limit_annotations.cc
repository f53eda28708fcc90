// SPDX-License-Identifier: Apache-2.0
#include "src/device/memory_limit.h"

#include "src/base/strings.h"
#include "src/device/quantity.h"

namespace tessera::device {
namespace {

// The driver gives memory in such blocks.
constexpr Bytes kBlock{int64_t{2} << 20};

Result<MemoryLimit> ParseOne(std::string_view text) {
  const size_t equals = text.find('=');
  const bool named = equals != std::string_view::npos;
  MemoryLimit limit;
  if (named) limit.only = text.substr(0, equals);
  const std::string_view amount = named ? text.substr(equals + 1) : text;
  if (named && limit.only.empty()) {
    return Error(Code::kInvalidArgument,
                 "\"{}\": want a container or the UUID of a GPU before \"=\"", text);
  }
  ASSIGN_OR_RETURN(limit.memory, ParseMemory(amount).Annotate(fmt::format("\"{}\"", text)));
  if (limit.memory < kBlock) {
    return Error(Code::kInvalidArgument, "\"{}\": want at least 2Mi, such as 8Gi", text);
  }
  return limit;
}

}  // namespace

Result<MemoryLimits> ParseMemoryLimits(std::string_view text) {
  MemoryLimits limits;
  if (text.empty()) return limits;
  for (const std::string_view entry : Split(text, ',')) {
    ASSIGN_OR_RETURN(MemoryLimit limit, ParseOne(Trim(entry)));
    limits.push_back(std::move(limit));
  }
  return limits;
}

std::optional<Bytes> LimitFor(const MemoryLimits& limits, std::string_view container,
                              std::string_view uuid) {
  std::optional<Bytes> memory;
  for (const MemoryLimit& limit : limits) {
    if (limit.only.empty() || limit.only == container || limit.only == uuid) memory = limit.memory;
  }
  return memory;
}

}  // namespace tessera::device
