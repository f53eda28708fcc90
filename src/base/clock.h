// SPDX-License-Identifier: Apache-2.0
// Injected time. Objects that decide by time take a Clock, so that tests can control it.
#pragma once

#include <chrono>
#include <string>

namespace tessera {

using Duration = std::chrono::nanoseconds;
using MonotonicTime = std::chrono::time_point<std::chrono::steady_clock, Duration>;
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;

// "2026-01-31T23:59:59Z", the format of times in the Kubernetes API.
std::string Rfc3339(WallTime time);

// Threads: any may call Now and WallNow.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
  virtual WallTime WallNow() const = 0;
};

class SystemClock : public Clock {
 public:
  MonotonicTime Now() const override;
  WallTime WallNow() const override;
};

// Time stands still until Advance moves both clocks. Threads: one.
class FakeClock : public Clock {
 public:
  MonotonicTime Now() const override { return now_; }
  WallTime WallNow() const override {
    return WallTime(std::chrono::seconds(1'700'000'000) + now_.time_since_epoch());
  }
  void Advance(Duration by) { now_ += by; }

 private:
  MonotonicTime now_{};
};

}  // namespace tessera
