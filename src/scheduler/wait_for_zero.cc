// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/wait_for_zero.h"

#include <utility>

namespace tessera::scheduler {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(50);

void Poll(TaskRunner& runner, MonotonicTime until, std::function<size_t()> remaining,
          std::function<void(size_t)> on_done) {
  const size_t count = remaining();
  if (count == 0 || runner.clock().Now() >= until) return on_done(count);
  runner.PostDelayed(kPollInterval,
                     [&runner, until, remaining = std::move(remaining),
                      on_done = std::move(on_done)] { Poll(runner, until, remaining, on_done); });
}

}  // namespace

void WaitForZero(TaskRunner& runner, Duration limit, std::function<size_t()> remaining,
                 std::function<void(size_t remaining)> on_done) {
  const MonotonicTime until = runner.clock().Now() + limit;
  runner.Post([&runner, until, remaining = std::move(remaining), on_done = std::move(on_done)] {
    Poll(runner, until, remaining, on_done);
  });
}

}  // namespace tessera::scheduler
