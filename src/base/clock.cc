// SPDX-License-Identifier: Apache-2.0
#include "src/base/clock.h"

namespace tessera {

MonotonicTime SystemClock::Now() const { return std::chrono::steady_clock::now(); }
WallTime SystemClock::WallNow() const { return std::chrono::system_clock::now(); }

}  // namespace tessera
