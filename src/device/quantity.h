// SPDX-License-Identifier: Apache-2.0
// Parses Kubernetes quantities: "2", "2k", "1Gi", "1e3", "500m". Follows the API server exactly,
// including rounding up to nano, with two exceptions: it rejects negative values, and values above
// 2^63-1 instead of clamping them. Pure; any thread.
//
// Errors: INVALID_ARGUMENT with the reason: "\"500m\" is not a whole number".
#pragma once

#include <cstdint>
#include <string_view>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::device {

// Thousandths of one CPU.
using MilliCpu = Quantity<struct MilliCpuTag>;

// Quantity of an extended resource, which must be whole; "1000m" and "0.5Gi" are whole.
Result<int64_t> ParseWholeQuantity(std::string_view text);

// Quantities of cpu and memory, which the API server rounds up to whole thousandths and whole
// bytes.
Result<MilliCpu> ParseCpu(std::string_view text);
Result<Bytes> ParseMemory(std::string_view text);

}  // namespace tessera::device
