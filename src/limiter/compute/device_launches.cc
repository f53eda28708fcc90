// SPDX-License-Identifier: Apache-2.0
// cuLaunchCooperativeKernelMultiDevice. Each of its launches is charged to its device like a
// cooperative launch.
#include "src/limiter/compute/launch.h"
#include "src/limiter/loader/driver.h"
#include "src/limiter/process/process.h"

namespace tessera::cuda {
namespace {

using limiter::Books;
using limiter::current_thread;
using limiter::driver;
using limiter::Meter;
using limiter::Process;
using limiter::Throttle;

// While an object of this class exists, the context of the stream is current.
class ScopedStreamContext {
 public:
  explicit ScopedStreamContext(Stream stream) {
    Context context = nullptr;
    if (driver.cuStreamGetCtx(stream, &context) != Result::kSuccess) return;
    pushed_ = driver.cuCtxPushCurrent_v2(context) == Result::kSuccess;
    if (pushed_) meter_ = Throttle::Get().FindMeter(&current_thread);
  }
  ~ScopedStreamContext() {
    Context context = nullptr;
    if (pushed_) driver.cuCtxPopCurrent_v2(&context);
    current_thread.context_serial = 0;
  }
  ScopedStreamContext(const ScopedStreamContext&) = delete;
  ScopedStreamContext& operator=(const ScopedStreamContext&) = delete;

  // Null: the device of the stream is not limited, or the stream is invalid.
  Meter* meter() const { return meter_; }

 private:
  bool pushed_ = false;
  Meter* meter_ = nullptr;
};

limiter::Work WorkOf(const DeviceLaunch& launch) {
  return limiter::KernelWork(reinterpret_cast<uintptr_t>(launch.function), launch.grid_x,
                             launch.grid_y, launch.grid_z);
}

// The launches on limited devices, in the order of the devices. Threads that wait for several
// devices wait in this order, so they do not wait for each other.
class LimitedLaunches {
 public:
  // False: the driver will refuse the launches, because two are on the same device.
  bool Add(const DeviceLaunch& launch) {
    if (Throttle::Get().IsCaptured({launch.stream})) return false;
    Meter* const meter = ScopedStreamContext(launch.stream).meter();
    if (meter == nullptr || meter->gate.books().epoch() == 0) return true;
    int index = count_;
    for (; index > 0 && launches_[index - 1].meter >= meter; --index) {
      if (launches_[index - 1].meter == meter) return false;
      launches_[index] = launches_[index - 1];
    }
    launches_[index] = {&launch, meter, Books::kNoMark, false};
    ++count_;
    return true;
  }
  // Waits until all devices permit the launch, and only then records all start events, so that a
  // start event shortly precedes its launch.
  void Begin() {
    for (LimitedLaunch& entry : *this) {
      const ScopedStreamContext context(entry.launch->stream);
      if (context.meter() != entry.meter) continue;  // the context has ended
      const cuda::Stream stream = entry.launch->stream;
      Throttle::Get().WaitToLaunch(
          &current_thread,
          {WorkOf(*entry.launch), limiter::kGuessedKernelTime, reinterpret_cast<uintptr_t>(stream)},
          {stream}, &entry.mark);
    }
    for (LimitedLaunch& entry : *this) {
      if (entry.mark == Books::kNoMark) continue;
      const ScopedStreamContext context(entry.launch->stream);
      entry.start_recorded = context.meter() == entry.meter &&
                             entry.meter->gate.BeginLaunch(entry.mark, {entry.launch->stream});
    }
  }
  void End(Result result) {
    for (LimitedLaunch& entry : *this) {
      if (entry.mark == Books::kNoMark) continue;
      const ScopedStreamContext context(entry.launch->stream);
      const bool succeeded =
          entry.start_recorded && result == Result::kSuccess && context.meter() == entry.meter;
      entry.meter->gate.EndLaunch(entry.mark, {entry.launch->stream}, succeeded);
    }
    for (const LimitedLaunch& entry : *this) {
      if (entry.mark == Books::kNoMark) continue;
      Throttle::Get().AwaitUnpriced(entry.meter, PriceKey(WorkOf(*entry.launch)));
    }
  }

 private:
  struct LimitedLaunch {
    const DeviceLaunch* launch;
    Meter* meter;
    int mark;
    bool start_recorded;
  };
  LimitedLaunch* begin() { return launches_; }
  LimitedLaunch* end() { return launches_ + count_; }

  LimitedLaunch launches_[limiter::kMaxGpus];
  int count_ = 0;
};

}  // namespace

LIMITER_EXPORT Result cuLaunchCooperativeKernelMultiDevice(DeviceLaunch* launches, unsigned count,
                                                           unsigned flags) {
  LimitedLaunches limited;
  bool valid = Process::Get().IsLimiting() && launches != nullptr && count <= limiter::kMaxGpus;
  for (unsigned i = 0; i < count && valid; ++i) valid = limited.Add(launches[i]);
  if (valid) limited.Begin();
  const Result result = driver.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
  if (valid) limited.End(result);
  return result;
}

}  // namespace tessera::cuda
