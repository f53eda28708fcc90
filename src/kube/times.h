// SPDX-License-Identifier: Apache-2.0
// Times as the API writes them in JSON. base's Rfc3339 writes whole seconds. Pure.
#pragma once

#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera::kube {

// "2026-01-31T23:59:59Z", with fractions and offsets ("+08:00") where there are any. Finer than a
// nanosecond is cut. INVALID_ARGUMENT quotes the text.
Result<WallTime> ParseRfc3339(std::string_view text);

// "2026-01-31T23:59:59.123456Z", the form of a Lease.
std::string Rfc3339Micros(WallTime time);

}  // namespace tessera::kube
