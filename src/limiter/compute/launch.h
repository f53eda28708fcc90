// SPDX-License-Identifier: Apache-2.0
// Makes a driver call that gives work to the GPU: at once, or as soon as the compute limit permits
// it. Threads: any. Cost: a few nanoseconds if the launch need not wait.
#pragma once

#include "src/limiter/compute/throttle.h"
#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {

extern constinit thread_local ThrottledThread current_thread;

// Price of a launch of a kernel or graph if no similar launch was timed.
inline constexpr int64_t kGuessedKernelTime = 20 * kMicrosecond;

// True, the usual case: the launch may be made at once. Only on a GPU with a limit, `make_work` is
// called and the thread's credit pays for the launch.
template <typename MakeWork>
[[gnu::always_inline]] inline bool TryAdmitLaunch(MakeWork make_work) {
  if (!Throttle::Get().IsCurrent(current_thread)) [[unlikely]]
    return false;
  Meter* const meter = current_thread.meter;
  if (meter == nullptr) return true;
  const uint32_t epoch = meter->gate.books().epoch();
  return epoch == 0 ||
         meter->gate.books().Spend(&current_thread.books, PriceKey(make_work()), epoch);
}

template <typename Call>
cuda::Result LaunchThrottled(const Work& work, int64_t fallback_price, LaunchStream stream,
                             Call call) {
  Throttle& throttle = Throttle::Get();
  Meter* const meter = throttle.FindMeter(&current_thread);
  if (meter == nullptr || meter->gate.books().epoch() == 0) return call();
  if (throttle.IsCaptured(stream)) return call();
  const uintptr_t stream_id = stream.handle != nullptr ? reinterpret_cast<uintptr_t>(stream.handle)
                              : stream.per_thread      ? cuda::kStreamPerThread
                                                       : 0;
  int mark = Books::kNoMark;
  throttle.WaitToLaunch(&current_thread, {work, fallback_price, stream_id}, stream, &mark);
  if (mark == Books::kNoMark) return call();
  const bool start_recorded = meter->gate.BeginLaunch(mark, stream);
  const cuda::Result result = call();
  meter->gate.EndLaunch(mark, stream, start_recorded && result == cuda::Result::kSuccess);
  throttle.AwaitUnpriced(meter, PriceKey(work));
  return result;
}

template <typename MakeWork, typename Call>
cuda::Result Launch(MakeWork make_work, int64_t fallback_price, LaunchStream stream, Call call) {
  return TryAdmitLaunch(make_work) ? call()
                                   : LaunchThrottled(make_work(), fallback_price, stream, call);
}

}  // namespace tessera::limiter
