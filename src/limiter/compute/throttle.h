// SPDX-License-Identifier: Apache-2.0
// Compute limits in one process: a Gate for each GPU on the real driver, the GPU time that each
// thread has taken in advance, and a helper thread that settles work in flight.
//
// The helper thread starts with the first timed launch, and sleeps while no work is in flight. A
// statically linked program cannot have a helper thread; its launches and waits settle work in
// flight.
// Threads: any. No lock is held across a driver call.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/limiter/compute/gate.h"
#include "src/limiter/loader/driver.h"
#include "src/limiter/region.h"

namespace tessera::limiter {

// The stream argument of a driver function. In functions with _ptsz, handle 0 is the per-thread
// default stream.
struct LaunchStream {
  cuda::Stream handle = nullptr;
  bool per_thread = false;
};

// The events of a process on one GPU.
class DriverGpu {
 public:
  int64_t Now();
  bool Record(int event, LaunchStream stream);
  bool Done(int event);
  int64_t Elapsed(int start, int end);
  // The context in which the next events are recorded.
  void SetContext(uint64_t context) { context_ = context; }
  // Forgets the events of a context that has ended; 0: of all contexts.
  void ForgetEvents(uint64_t context);

 private:
  struct ContextEvent {
    cuda::Event event;
    uint64_t context;
  };
  ContextEvent events_[2 * Books::kMarks] = {};
  static thread_local uint64_t context_;
};

struct Meter {
  constexpr Meter() : gate(&gpu) {}
  DriverGpu gpu;
  Gate<DriverGpu, LaunchStream> gate;
  Prices prices;
};

struct ThrottledThread {
  Books::ThreadCredit books;
  uint32_t context_serial = 0;  // Throttle::context_serial_ when `meter` was found
  Meter* meter = nullptr;
};

class Throttle {
 public:
  static Throttle& Get();  // inline, because every launch calls it

  // Called when the region is mapped, and again in a child after fork.
  void Open(const Limits* limits, Usage* usage, uint32_t slot);

  // True: the thread's meter belongs to its current context, and no stream is being captured.
  bool IsCurrent(const ThrottledThread& thread) const {
    return thread.context_serial == context_serial_.load(std::memory_order_relaxed);
  }
  // Finds the meter of the thread's current context; nullptr: the GPU is not limited.
  Meter* FindMeter(ThrottledThread* thread);
  // Waits until the launch may be made. `mark`: see Gate::Decide.
  void WaitToLaunch(ThrottledThread* thread, const Books::Launch& launch, LaunchStream stream,
                    int* mark);
  // Called after a launch with a mark. `key` is the key of its price. If there is no helper thread
  // and the price is unknown, waits until the launch has ended, for at most two seconds, and
  // charges the launch while it runs.
  void AwaitUnpriced(Meter* meter, uint64_t key);
  // True: work on the stream becomes part of a graph instead of running.
  bool IsCaptured(LaunchStream stream) const;

  // Called when the current context of any thread may have changed or ended.
  void Invalidate();
  void BeginCapture();
  void EndCapture();
  // Called before a call that may destroy a context. The call also destroys the events of the
  // context, which must not be queried afterwards. Waits for launches whose GPU time is unknown, as
  // the driver waits for all work of the context.
  void DropMarks();
  void ForgetContext(uint64_t id);
  void ForgetGraph(const void* graph);
  void ForgetFunctions();

 private:
  friend void* RunHelperThread(void* self);
  void OpenMeter(uint32_t gpu);
  bool IsOpen(const Meter& meter) const {
    return (opened_gpus_.load() >> (&meter - meters_) & 1) != 0;
  }
  void StartHelper();
  bool PollAll();

  Meter meters_[kMaxGpus];
  const Limits* limits_ = nullptr;
  Usage* usage_ = nullptr;
  uint32_t slot_ = 0;
  std::atomic<uint32_t> context_serial_{1};  // never 0, which marks a thread without a meter
  SpinLock lock_;                            // held by OpenMeter
  std::atomic<uint32_t> opened_gpus_{0};     // GPUs whose meter was opened, as bits
  std::atomic<int> captures_{0};
  std::atomic<int> helper_state_{0};
};

extern constinit Throttle process_throttle;
inline Throttle& Throttle::Get() { return process_throttle; }

inline Work GraphWork(const void* graph) { return {reinterpret_cast<uintptr_t>(graph)}; }

}  // namespace tessera::limiter
