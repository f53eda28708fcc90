// SPDX-License-Identifier: Apache-2.0
// Times in the JSON of the API. Rfc3339 in base/clock.h formats whole seconds. Pure.
#pragma once

#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera::kube {

// Parses "2026-01-31T23:59:59Z", with optional fractions and offsets ("+08:00"). Digits below a
// nanosecond are dropped. INVALID_ARGUMENT quotes the text.
Result<WallTime> ParseRfc3339(std::string_view text);

// "2026-01-31T23:59:59.123456Z", the form of a Lease.
std::string Rfc3339Micros(WallTime time);

}  // namespace tessera::kube
