// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/compute/throttle.h"

#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/limiter/compute/tuning.h"
#include "src/limiter/loader/old_symbols.h"
#include "src/limiter/process/process.h"

namespace tessera::limiter {
namespace {

using cuda::Result;

// kImpossible: the process cannot have a helper thread.
enum HelperState : int { kNone = 0, kAsleep, kAwake, kImpossible };
// After this many polls without work in flight, the helper thread sleeps until the next launch.
constexpr int kIdlePolls = 20;

// How long the end of a context waits for launches of unknown price, and the time between two
// checks.
constexpr int64_t kMaxAwaited = 10 * kSecond, kAwaitPause = 100 * kMicrosecond;

void Sleep(int64_t nanoseconds) {
  const timespec pause = {nanoseconds / kSecond, nanoseconds % kSecond};
  ::nanosleep(&pause, nullptr);
}

void Futex(std::atomic<int>* word, int operation, int value) {
  ::syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

// In a statically linked program, dlopen loads a second C library with its dynamic linker, which
// never runs. So pthread_create of that C library crashes. A dynamic linker that runs sets the
// version of _r_debug, even if it was started with the program as its argument.
bool IsProgramStatic() {
  const auto* debug = static_cast<const r_debug*>(::dlsym(RTLD_DEFAULT, "_r_debug"));
  return debug != nullptr && debug->r_version == 0;
}

}  // namespace

thread_local uint64_t DriverGpu::context_ = 0;

int64_t DriverGpu::Now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

// An event belongs to a context, so this function creates the event again after a change of
// context.
bool DriverGpu::Record(int event, LaunchStream stream) {
  ContextEvent& event_slot = events_[event];
  if (event_slot.event == nullptr || event_slot.context != context_) {
    if (event_slot.event != nullptr) driver.cuEventDestroy_v2(event_slot.event);
    event_slot.event = nullptr;
    const RelaxedCapture relaxed;
    if (driver.cuEventCreate(&event_slot.event, 0) != Result::kSuccess) return false;
    event_slot.context = context_;
  }
  const auto record = stream.per_thread ? driver.cuEventRecord_ptsz : driver.cuEventRecord;
  return record(event_slot.event, stream.handle) == Result::kSuccess;
}

bool DriverGpu::Done(int event) {
  return driver.cuEventQuery(events_[event].event) != Result::kNotReady;
}

int64_t DriverGpu::Elapsed(int start, int end) {
  float milliseconds = 0;
  const Result result =
      driver.cuEventElapsedTime(&milliseconds, events_[start].event, events_[end].event);
  if (result != Result::kSuccess || !(milliseconds >= 0 && milliseconds < 1e9f)) return -1;
  return int64_t(double(milliseconds) * kMillisecond);
}

void DriverGpu::ForgetEvents(uint64_t context) {
  for (ContextEvent& event_slot : events_) {
    if (context == 0 || event_slot.context == context) event_slot = {};
  }
}

constinit Throttle process_throttle;

void Throttle::Open(const Limits* limits, Usage* usage, uint32_t slot) {
  limits_ = limits;
  usage_ = usage;
  slot_ = slot;
  captures_.store(0);
  const uint32_t inherited = opened_gpus_.exchange(0);
  helper_state_.store(kNone);
  lock_.Reset();
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if ((inherited >> gpu & 1) == 0) continue;
    meters_[gpu].gpu.ForgetEvents(0);
    meters_[gpu].prices.Clear();
  }
  Invalidate();
}

// Called only when the process first uses the GPU, so that the meters of other GPUs take no memory.
void Throttle::OpenMeter(uint32_t gpu) {
  const SpinGuard guard(&lock_);
  if ((opened_gpus_.load() >> gpu & 1) != 0) return;
  ComputeUsage& lines = usage_->compute[gpu];
  Meter& meter = meters_[gpu];
  meter.gate.books().Open(
      {&limits_->compute[gpu], &limits_->parts[gpu][slot_], &lines.charge, &lines.slots[slot_]},
      &meter.prices);
  usage_->compute_gpus[slot_].fetch_or(1u << gpu);
  uint32_t seen = lines.charge.slots.load();
  while (seen < slot_ + 1 && !lines.charge.slots.compare_exchange_weak(seen, slot_ + 1)) {
  }
  opened_gpus_.fetch_or(1u << gpu);
}

void Throttle::Invalidate() {
  if (context_serial_.fetch_add(1, std::memory_order_relaxed) == UINT32_MAX)
    context_serial_.store(1);
}

Meter* Throttle::FindMeter(ThrottledThread* thread) {
  Process& process = Process::Get();
  if (!process.IsLimiting()) return nullptr;
  const uint32_t context_serial = context_serial_.load(std::memory_order_relaxed);
  const Contexts::Info context = process.CurrentContext();
  Meter* meter = nullptr;
  if (context.gpu >= 0 && context.id != 0) {
    OpenMeter(uint32_t(context.gpu));
    meter = &meters_[context.gpu];
  }
  if (meter != thread->meter) {
    if (thread->meter != nullptr) thread->meter->gate.books().Refund(&thread->books);
    thread->books = {};
    thread->meter = meter;
  }
  thread->context_serial = captures_.load(std::memory_order_relaxed) == 0 ? context_serial : 0;
  if (meter != nullptr) meter->gpu.SetContext(context.id);
  return meter;
}

void Throttle::WaitToLaunch(ThrottledThread* thread, const Books::Launch& launch,
                            LaunchStream stream, int* mark) {
  Meter* const meter = thread->meter;
  const RelaxedCapture relaxed;
  std::atomic<int64_t>& waited = usage_->compute[meter - meters_].charge.waited;
  int64_t pause = 0;
  while ((pause = meter->gate.Decide(&thread->books, launch, stream, mark)) > 0) {
    StartHelper();
    const int64_t start = meter->gpu.Now();
    Sleep(pause);
    waited.fetch_add(meter->gpu.Now() - start, std::memory_order_relaxed);
  }
  if (*mark != Books::kNoMark) StartHelper();
}

void Throttle::AwaitUnpriced(Meter* meter, uint64_t key) {
  const int state = helper_state_.load(std::memory_order_relaxed);
  if (state == kAwake || state == kAsleep) return;
  const Price* price = meter->prices.Find(key);
  if (price == nullptr) return;
  const RelaxedCapture relaxed;
  const int64_t start = meter->gpu.Now();
  while (price->price.load(std::memory_order_relaxed) == kUnpriced &&
         meter->gate.books().HasUnpriced() && meter->gpu.Now() - start < Books::kMaxChargeRunning) {
    Sleep(kAwaitPause);
    meter->gate.Poll();
  }
}

// A failed query counts as a capture.
bool Throttle::IsCaptured(LaunchStream stream) const {
  if (captures_.load(std::memory_order_relaxed) == 0) return false;
  const auto query =
      stream.per_thread ? driver.cuStreamIsCapturing_ptsz : driver.cuStreamIsCapturing;
  int status = 0;
  const Result result = query(stream.handle, &status);
  return (result != Result::kSuccess && result != Result::kNotSupported) || status != 0;
}

void Throttle::BeginCapture() {
  captures_.fetch_add(1, std::memory_order_relaxed);
  Invalidate();
}

void Throttle::EndCapture() {
  if (captures_.fetch_sub(1, std::memory_order_relaxed) <= 0) captures_.store(0);
  Invalidate();
}

void Throttle::DropMarks() {
  const RelaxedCapture relaxed;
  for (Meter& meter : meters_) {
    if (!IsOpen(meter)) continue;
    const int64_t start = meter.gpu.Now();
    int64_t now = start;
    for (;; Sleep(kAwaitPause), now = meter.gpu.Now()) {
      meter.gate.SettleEnded(now);
      if (!meter.gate.books().HasUnpriced() || now - start > kMaxAwaited) break;
    }
    meter.gate.books().DropMarks(now);
  }
}

void Throttle::ForgetContext(uint64_t id) {
  for (Meter& meter : meters_) {
    if (id != 0 && IsOpen(meter)) meter.gpu.ForgetEvents(id);
  }
  Invalidate();
}

void Throttle::ForgetGraph(const void* graph) {
  for (Meter& meter : meters_) {
    if (IsOpen(meter)) meter.gate.books().Forget(GraphWork(graph));
  }
}

void Throttle::ForgetFunctions() {
  for (Meter& meter : meters_) {
    if (IsOpen(meter)) meter.gate.books().ForgetAll();
  }
}

bool Throttle::PollAll() {
  bool busy = false;
  for (Meter& meter : meters_) {
    if (IsOpen(meter)) busy |= meter.gate.Poll();
  }
  return busy;
}

void* RunHelperThread(void* self) {
  auto* const throttle = static_cast<Throttle*>(self);
  std::atomic<int>& state = throttle->helper_state_;
  int mode = kRelaxedCapture;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  for (int idle = 0;;) {
    idle = throttle->PollAll() ? 0 : idle + 1;
    int awake = kAwake;
    if (idle > kIdlePolls && state.compare_exchange_strong(awake, kAsleep)) {
      while (state.load() == kAsleep) Futex(&state, FUTEX_WAIT, kAsleep);
      idle = 0;
    }
    Sleep(kMillisecond);
  }
}

// pthread_create is looked up by name, because newer C libraries have it in another library and
// with another version. The new thread blocks all signals.
void Throttle::StartHelper() {
  int state = helper_state_.load(std::memory_order_relaxed);
  if (state == kAwake || state == kImpossible) return;
  if (!helper_state_.compare_exchange_strong(state, kAwake)) return;
  if (state == kAsleep) {
    Futex(&helper_state_, FUTEX_WAKE, 1);
    return;
  }
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  using Detach = int (*)(pthread_t);
  const auto create = reinterpret_cast<Create>(::dlsym(RTLD_DEFAULT, "pthread_create"));
  const auto detach = reinterpret_cast<Detach>(::dlsym(RTLD_DEFAULT, "pthread_detach"));
  if (create == nullptr || detach == nullptr || IsProgramStatic()) {
    helper_state_.store(kImpossible);
    return;
  }
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (create(&thread, nullptr, RunHelperThread, this) == 0) {
    detach(thread);
  } else {
    helper_state_.store(kNone);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace tessera::limiter
