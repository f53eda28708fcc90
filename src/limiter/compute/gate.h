// SPDX-License-Identifier: Apache-2.0
// Connects Books with a GPU: asks the books before a launch, records the events of the launch, and
// settles its mark once the events are done. `Gpu` is the driver in the limiter and a model in
// tests:
//
//   int64_t Now();                              nanoseconds of CLOCK_MONOTONIC
//   bool Record(int event, Stream stream);      false: the GPU did not record the event
//   bool Done(int event);                       does not wait; a failed event is done
//   int64_t Elapsed(int start, int end);        nanoseconds between two done events; -1: unknown
//
// Events are numbers below kEvents. The caller waits for the time that Decide returns. Threads:
// any. No lock is held across a GPU call.
#pragma once

#include <cstdint>

#include "src/limiter/compute/books.h"

namespace tessera::limiter {

template <typename Gpu, typename Stream>
class Gate {
 public:
  static constexpr int kEvents = 2 * Books::kMarks;
  static constexpr int StartOf(int mark) { return 2 * mark; }
  static constexpr int EndOf(int mark) { return 2 * mark + 1; }

  explicit constexpr Gate(Gpu* gpu) : gpu_(gpu) {}

  Books& books() { return books_; }

  // Returns the nanoseconds to wait before the next Decide. 0: launch now; if `*mark` is not
  // kNoMark, call BeginLaunch before and EndLaunch after the launch.
  int64_t Decide(Books::ThreadCredit* thread, const Books::Launch& launch, Stream stream,
                 int* mark) {
    const int64_t now = gpu_->Now();
    SettleEnded(now);
    const Books::LaunchDecision decision = books_.Decide(thread, launch, now);
    *mark = decision.mark;
    if (decision.wait > 0 && decision.mark != Books::kNoMark) {
      const bool start_recorded =
          !books_.HasStart(decision.mark) || BeginLaunch(decision.mark, stream);
      EndLaunch(decision.mark, stream, start_recorded);
      *mark = Books::kNoMark;
    }
    return decision.wait;
  }
  bool BeginLaunch(int mark, Stream stream) { return gpu_->Record(StartOf(mark), stream); }
  void EndLaunch(int mark, Stream stream, bool start_recorded) {
    books_.Commit(mark, start_recorded && gpu_->Record(EndOf(mark), stream));
  }

  // Settles the marks whose work has ended.
  void SettleEnded(int64_t now) {
    for (int mark = books_.AcquireOldest(); mark != Books::kNoMark; mark = books_.AcquireOldest()) {
      if (!gpu_->Done(EndOf(mark))) return books_.ReleaseUnfinished(now);
      Books::Times times;
      if (books_.HasStart(mark)) times.pair = gpu_->Elapsed(StartOf(mark), EndOf(mark));
      if (const int previous = books_.Previous(); previous != Books::kNoMark) {
        times.segment = gpu_->Elapsed(EndOf(previous), EndOf(mark));
      }
      books_.Settle(mark, times, now);
    }
  }

  // Called before and after a call that waits for work of one stream, or of all streams.
  void BeginWait(Books::ThreadCredit* thread) { books_.BeginWait(thread, gpu_->Now()); }
  void EndWait(Books::ThreadCredit* thread, Books::Waited waited) {
    const int64_t now = gpu_->Now();
    SettleEnded(now);
    books_.EndWait(thread, waited, now);
  }
  // Called every millisecond while work is in flight. False: no work is in flight.
  bool Poll() {
    const int64_t now = gpu_->Now();
    SettleEnded(now);
    if (const int mark = books_.AcquireOldest(); mark != Books::kNoMark) {
      // Until the GPU reaches the start event, the launch waits for other work of its stream or for
      // the program.
      if (books_.HasStart(mark) && gpu_->Done(StartOf(mark))) books_.ChargeRunning(mark, now);
      books_.Release();
    }
    books_.Poll(now);
    return !books_.idle();
  }

 private:
  Gpu* const gpu_;
  Books books_;
};

}  // namespace tessera::limiter
