// SPDX-License-Identifier: Apache-2.0
#include "src/base/clock.h"

#include <array>
#include <ctime>

namespace tessera {

MonotonicTime SystemClock::Now() const { return std::chrono::steady_clock::now(); }
WallTime SystemClock::WallNow() const { return std::chrono::system_clock::now(); }

std::string Rfc3339(WallTime time) {
  const std::time_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace tessera
