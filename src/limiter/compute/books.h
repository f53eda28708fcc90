// SPDX-License-Identifier: Apache-2.0
// Books of the GPU time that one process uses on one GPU: the charges of its launches, the work in
// flight, and whether the next launch has to wait. Books only keep accounts, in the lines of the
// region (region.h). Gate reads the clock and calls the driver. All times and charges are
// nanoseconds.
//
// Charging. A launch is charged its price when it is made. A thread takes a slice of GPU time in
// advance and spends it without a lock; the launch that uses up a slice is timed with a pair of
// events. The slice paid for slice / price launches of the same key (prices.h), and the measured
// time counts as the time of each of them. The measured time corrects the price and the charge. So
// charges are right on average even while prices are wrong. The GPU time of the events is
// subtracted. It is measured while a thread waits, with pairs of events without a launch.
//
// Marks. A mark is an end event, with a start event if its launch is timed. A mark covers the work
// since the previous mark. When its end event is done, that work is no longer in flight.
//
// Running work. If the process is killed, its work in flight is never measured. So a launch whose
// price is not known is charged while it runs.
//
// Contention. The time between the events of a launch includes the turns of other processes.
// OwnTime and MeanPart subtract these turns.
//
// Threads: any. A spin lock protects the books for a few instructions; Spend takes no lock.
// Crashes: see region.h. A process that ends loses at most the slices that its threads have taken.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/limiter/compute/prices.h"
#include "src/limiter/region.h"
#include "src/limiter/region/spin_lock.h"

namespace tessera::limiter {

class Books {
 public:
  // GPU time that one thread has taken in advance. All fields of a new thread are 0.
  struct ThreadCredit {
    uint32_t epoch = 0;
    uint32_t random = 0;
    int64_t credit = 0;
    int64_t booked_credit = 0;  // credit at the last update of the books
  };

  struct Lines {
    const ComputeLimit* limit;
    const ComputePart* part;
    ComputeCharge* charge;
    ComputeSlot* slot;
  };

  // Maximum charge of a launch before it ends. Without a maximum, the charge could delay a launch
  // for which this launch waits.
  static constexpr int64_t kMaxChargeRunning = 2'000'000'000;

  static constexpr int kMarks = 64;  // maximum number of outstanding marks
  static constexpr int kNoMark = -1;

  struct Launch {
    Work work;
    int64_t fallback_price;  // price if no similar launch was timed
    uintptr_t stream;        // identifies the stream
  };

  // wait > 0: do not launch; record the events of `mark`, and call Decide again after `wait`
  // nanoseconds. wait == 0: launch; record the events of `mark` before and after the launch. If
  // `mark` is kNoMark, record no event.
  struct LaunchDecision {
    int64_t wait = 0;
    int mark = kNoMark;
  };

  // Times between events of a mark, in nanoseconds. -1: unknown.
  struct Times {
    int64_t pair = -1;     // from start event to end event
    int64_t segment = -1;  // from the end event of the last settled mark to this end event
  };

  void Open(const Lines& lines, Prices* prices);

  uint32_t epoch() const { return lines_.limit->epoch.load(std::memory_order_relaxed); }

  // The hot path, in an epoch that is not 0. True: launch; nothing else is needed.
  bool Spend(ThreadCredit* thread, uint64_t key, uint32_t epoch) const {
    if (epoch != thread->epoch) return false;
    const Price* price = prices_->Find(key);
    if (price == nullptr) return false;
    const int64_t cost = price->price.load(std::memory_order_relaxed);
    if (thread->credit < cost) return false;
    thread->credit -= cost;
    return true;
  }

  // Called after a copy or set within device memory was launched.
  void RecordCopy(uint64_t key) const {
    const Price* price = prices_->Find(key);
    if (price == nullptr || price->samples == 0) return;
    lines_.charge->copied.fetch_add(price->price.load(std::memory_order_relaxed),
                                    std::memory_order_relaxed);
  }
  LaunchDecision Decide(ThreadCredit* thread, const Launch& launch, int64_t now);
  // Called after every LaunchDecision with a mark. `recorded`: the driver has recorded the events
  // of the mark.
  void Commit(int mark, bool recorded);
  // Acquires the oldest mark. The caller then calls Settle or Release. kNoMark: the events of the
  // mark are not recorded yet, there is no mark, or another thread has acquired a mark.
  int AcquireOldest();
  void Release() { settling_.store(false, std::memory_order_release); }
  // Instead of Release, if the acquired mark has not ended.
  void ReleaseUnfinished(int64_t now) {
    unfinished_at_.store(now, std::memory_order_relaxed);
    Release();
  }
  void Settle(int mark, const Times& times, int64_t now);
  // True: the mark also has a start event.
  bool HasStart(int mark) const { return marks_[mark].timed || marks_[mark].is_empty_pair; }
  // Called after AcquireOldest, about every millisecond, while the launch of a timed mark runs.
  void ChargeRunning(int mark, int64_t now);
  // The mark that was settled last, whose end event is kept for `segment`, or kNoMark.
  int Previous() const { return previous_; }

  // Called before and after the thread waits for the GPU. kAll: all work of the process has ended.
  // kStream: the work of one stream has ended. kNot: the wait failed.
  enum class Waited { kNot, kStream, kAll };
  void BeginWait(ThreadCredit* thread, int64_t now);
  void EndWait(ThreadCredit* thread, Waited waited, int64_t now);
  // Gives back the GPU time that the thread has taken in advance.
  void Refund(ThreadCredit* thread);
  // Forgets the price of a graph or function that was destroyed, because its handle may be reused,
  // or of a graph whose nodes have changed. The measured time of launches in flight still corrects
  // their charge, but not the price of later launches.
  void Forget(const Work& work);
  void ForgetAll();
  // True: a launch is in flight whose price is not known, so it was charged its fallback price.
  bool HasUnpriced();
  // Called when the context of all outstanding marks ends, and with it their events. A launch of
  // unknown price is charged the time since its launch.
  void DropMarks(int64_t now);
  // Publishes the state of the process, and ends work in flight by the clock if no mark covers it.
  void Poll(int64_t now);
  bool idle() const { return covered_ == 0 && unmarked_ == 0; }

 private:
  enum State : int { kFree = 0, kClaimed, kRecorded, kFailed, kPrevious };
  struct Mark {
    std::atomic<int> state;
    bool timed;
    bool is_empty_pair;  // has a start event, and no launch between its events
    bool guessed;        // no price was known, not even a similar one
    bool from_idle;      // nothing was in flight at launch
    bool kept_busy;      // the previous mark had not ended shortly before the launch
    bool long_work;
    bool dropped;      // its context ended before its events were recorded
    bool overlaps;     // work of other streams was in flight at launch
    uint32_t version;  // of the price, if timed
    uint64_t key;
    uintptr_t stream;
    int64_t estimate;  // GPU time of the launch
    int64_t covers;    // GPU time of the work since the previous mark
    int64_t launched_at;
    int64_t launches;                         // number of launches for which the sample stands
    int64_t part_integral;                    // PartIntegral at the launch
    int64_t running_since, running_integral;  // first call of ChargeRunning; 0: none yet
    int64_t charged_running;                  // charged before the end, in addition to `covers`
  };

  // Adds the credit that the thread has spent since the last call to unmarked_. False: the thread
  // has spent nothing.
  bool NoteSpent(ThreadCredit* thread);
  struct Estimate {
    int64_t time;
    bool priced;   // launches of the key were timed
    bool guessed;  // no launch of the function was timed
    bool awaited;  // the launch must wait until a launch in flight is timed
  };
  Estimate EstimateOf(const Launch& launch, const Price& price);
  bool IsStalled(int64_t now) const;
  // Nanoseconds until the launch is decided again; 0: launch.
  int64_t PauseForWork(ThreadCredit* thread, const Estimate& estimate, int64_t now);
  int64_t PauseForShare(int64_t now);
  int64_t PauseForAllowance(int64_t rate, bool leased, int64_t now);
  int64_t PauseForWindow(int64_t estimate, uint32_t* random) const;
  void GrowAllowance(int64_t rate, int64_t now);
  int Claim(uint64_t key, uintptr_t stream, int64_t covers, int64_t now);
  int ClaimTimed(uintptr_t stream, const Estimate& estimate, int64_t slice, Price* price,
                 int64_t now);
  int ClaimTail(uintptr_t stream, int64_t now);
  int ClaimEmptyPair(uintptr_t stream, int64_t now);
  bool IsUnpriced(const Mark& mark) const;
  void DropFailed();
  void Retire(int index);
  bool HasOtherStreams(uintptr_t stream) const;
  int64_t OwnTime(const Mark& mark, const Times& times, bool contended, int64_t now);
  bool DropIfInterrupted(Price* price, int64_t own) const;
  int64_t WithMeanPart(const Mark& mark, int64_t pair, int64_t own_since_mark, int64_t now) const;
  int64_t WithoutTurns(const Mark& mark, int64_t pair, int64_t own_since_mark, int64_t now,
                       Price* price) const;
  static int64_t Bounded(const Mark& mark, int64_t own, bool contended);
  void SettleSample(const Mark& mark, const Times& times, int64_t own_since_mark, bool contended,
                    bool corrects, int64_t now);
  bool SettleSegment(const Mark& mark, int64_t segment, int64_t own, bool contended, int64_t now);
  void LearnEmptyPair(int64_t pair);
  bool Overlaps(int64_t now) const;
  void AddOverlap(int64_t own, int64_t covers);
  void LearnOverlap(const Mark& mark, int64_t own);
  void NoteIdle(int64_t now);
  void BoundByElapsed(int64_t unmarked, int64_t now);
  void Correct(int64_t difference);
  double MeanPart(const Mark& mark, int64_t now) const;
  int64_t PartIntegral(int64_t now, uint32_t* part) const;
  void Publish(int64_t now);
  bool Leased(int64_t now) const;
  int64_t Biased(int64_t amount) const;

  Lines lines_ = {};
  Prices* prices_ = nullptr;
  SpinLock lock_;
  Mark marks_[kMarks] = {};
  int order_[kMarks] = {};  // a ring of marks in the order of their launch
  uint32_t first_ = 0, count_ = 0;
  int previous_ = kNoMark;
  std::atomic<bool> settling_{false};
  std::atomic<int64_t> unfinished_at_{0};          // when a mark was last known not to have ended
  int64_t covered_ = 0;                            // GPU time that outstanding marks cover
  int64_t unmarked_ = 0;                           // GPU time launched since the last mark
  int64_t metered_ = 0;                            // ComputeSlot::metered
  int64_t settled_at_ = 0, settled_integral_ = 0;  // of the last settled mark
  int64_t released_at_ = 0;  // last launch that was made although work in flight was stalled
  int64_t stretch_ = -1;  // from the last start after idle to the end of the last mark; -1: unknown
  // When a mark that overlapped with other streams was last settled.
  int64_t overlapped_at_ = INT64_MIN / 2;
  // GPU time of a pair of events without a launch between them, and the number of measured pairs.
  int64_t empty_pair_ = 0;
  uint32_t empty_pairs_ = 0;
  bool noisy_ = false;  // the launches of the last timed key differ much
  // Decaying sums over work that ended while streams overlapped: own GPU time, and charges.
  double overlap_own_ = 0, overlap_covers_ = 0;
  int64_t usual_time_ = 0;    // estimate of the last timed launch
  int64_t idle_at_ = 0;       // last time at which no work was in flight; 0: unknown
  int64_t idle_metered_ = 0;  // metered_ at idle_at_
  // As in ComputeSlot.
  int64_t last_launch_ = 0, last_wait_ = 0, last_limited_ = 0, last_long_work_ = 0, longest_ = 0;
  int outstanding_long_ = 0;  // marks with long_work
  int waiting_threads_ = 0;
};

}  // namespace tessera::limiter
