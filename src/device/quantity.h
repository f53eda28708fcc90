// SPDX-License-Identifier: Apache-2.0
// Quantities as Kubernetes writes them: "2", "2k", "1Gi", "1e3", "500m". Read exactly as the API
// server does, rounding to nano upwards included, but for two things: what passes 2^63-1 is
// refused, not cut, and so is what is negative. Pure; any thread.
//
// Errors: INVALID_ARGUMENT says why: "\"500m\" is not a whole number".
#pragma once

#include <cstdint>
#include <string_view>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::device {

// Thousandths of one CPU.
using MilliCpu = Quantity<struct MilliCpuTag>;

// Of an extended resource, which counts in whole numbers. "1000m" and "0.5Gi" are whole.
Result<int64_t> ParseWholeQuantity(std::string_view text);

// Of cpu and memory, which the API server rounds up to whole thousandths and whole bytes.
Result<MilliCpu> ParseCpu(std::string_view text);
Result<Bytes> ParseMemory(std::string_view text);

}  // namespace tessera::device
