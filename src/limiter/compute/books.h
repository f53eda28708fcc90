// SPDX-License-Identifier: Apache-2.0
// Books of the GPU time that one process uses on one GPU: what its launches are charged, what of
// them is in flight, and whether the next one has to wait. Pure accounting on the lines of the
// region: no clock, no sleep, no call of the driver. Gate connects it with those.
//
// Charging. A launch is charged its price when it is made. A thread takes a slice of GPU time in
// advance and spends it without asking again; the launch that exhausts a slice is timed by a pair
// of events and stands for slice / price launches of its key. Its result corrects the price and
// what was charged, so the books are right on average even while prices are wrong.
//
// Marks. A mark is an end event, with a start event where its launch is timed. It covers the work
// since the mark before. When its event is done, that work is no longer in flight.
//
// Contention. The events of a launch run on while other processes have the GPU. `Own` says how a
// sample is corrected for it.
//
// Threads: any. A spin lock protects the books for a few instructions; Spend takes none. Crashes:
// see region.h. A process that ends loses at most the slices that its threads had taken.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/limiter/compute/prices.h"
#include "src/limiter/region.h"
#include "src/limiter/spin_lock.h"

namespace tessera::limiter {

class Books {
 public:
  // What one thread has taken in advance. All zeros is a valid start.
  struct Thread {
    uint32_t epoch = 0;
    uint32_t random = 0;
    int64_t credit = 0;
    int64_t noted = 0;  // credit when the books last saw it
  };

  struct Lines {
    const ComputeLimit* limit;
    const ComputePart* part;
    ComputeCharge* charge;
    ComputeSlot* slot;
  };

  static constexpr int kMarks = 64;
  static constexpr int kNoMark = -1;

  struct Launch {
    uint64_t key;
    int64_t guess;     // price of a key that was never timed
    uintptr_t stream;  // tells streams apart
  };

  // wait > 0: do not launch, ask again after so many nanoseconds; `mark`, unless kNoMark, wants an
  // end event after the last launch. wait == 0: launch; `mark` wants an event before and one after.
  struct Decision {
    int64_t wait = 0;
    int mark = kNoMark;
  };

  // A result of a mark's events, in nanoseconds. -1: not known.
  struct Times {
    int64_t pair = -1;     // from its start to its end event
    int64_t segment = -1;  // from the end event of the last mark that was settled to its own
  };

  void Open(const Lines& lines, Prices* prices);

  uint32_t epoch() const { return lines_.limit->epoch.load(std::memory_order_relaxed); }

  // The hot path, in an epoch that is not 0. True: launch; nothing else is to be done.
  bool Spend(Thread* thread, uint64_t key, uint32_t epoch) const {
    if (epoch != thread->epoch) return false;
    const Price* price = prices_->Find(key);
    if (price == nullptr) return false;
    const int64_t cost = price->price.load(std::memory_order_relaxed);
    if (thread->credit < cost) return false;
    thread->credit -= cost;
    return true;
  }

  Decision Decide(Thread* thread, const Launch& launch, int64_t now);
  // The events of a mark were recorded, or could not be.
  void Commit(int mark, bool recorded);
  // The oldest mark, where its events may be asked for: one thread at a time between Oldest and
  // the Settle that follows. kNoMark: there is none.
  int Oldest();
  void Leave() { settling_.store(false, std::memory_order_release); }  // without a Settle
  void Settle(int mark, const Times& times, int64_t now);
  bool IsTimed(int mark) const { return marks_[mark].timed; }
  // The mark that was settled last, whose end event is kept for `segment`; kNoMark.
  int Previous() const { return previous_; }

  // Around a wait of the thread, in this order: whether all work of the process, or that of a
  // stream, has ended, or the wait failed.
  enum class Waited { kNot, kStream, kAll };
  void BeginWait(Thread* thread, int64_t now);
  void EndWait(Thread* thread, Waited waited, int64_t now);
  // Gives up what the thread has taken in advance.
  void Refund(Thread* thread);
  // Functions or a graph are gone: their handles may be given again.
  void Forget(uint64_t key);
  void ForgetAll();
  // The context of all outstanding marks ends, and with it their events.
  void DropMarks();
  // Publishes the present, and ends what is in flight by the clock where no mark will tell.
  void Poll(int64_t now);
  bool idle() const { return covered_ == 0 && unmarked_ == 0; }

 private:
  enum State : int { kFree = 0, kClaimed, kOut, kFailed, kPrevious };
  struct Mark {
    std::atomic<int> state;
    bool timed;
    bool from_idle;  // nothing was in flight at launch
    bool kept_busy;  // the mark before had not ended at launch
    bool long_work;
    bool dropped;      // its context has ended before its events were recorded
    uint32_t streams;  // with outstanding marks, its own included
    uint64_t key;
    uintptr_t stream;
    int64_t estimate, weight, covers, launched, integral;
  };

  bool NoteSpent(Thread* thread);  // false: nothing since the last time
  int64_t WaitFor(Thread* thread, const Price& price, int64_t estimate, int64_t now);
  int64_t WaitForAllowance(int64_t rate, bool leased, int64_t now);
  int64_t WaitForWindow(int64_t estimate, uint32_t* random) const;
  void GrowAllowance(int64_t rate, int64_t now);
  int Claim(const Launch& launch, int64_t covers, int64_t now);
  int ClaimTail(uintptr_t stream, int64_t now);
  void DropFailed();
  void Retire(int index);
  uint32_t StreamsOut(uintptr_t stream) const;
  int64_t OwnSince(const Mark& mark, const Times& times, bool contended, int64_t now);
  bool DropAsCut(Price* price, int64_t own) const;
  void SettleSample(const Mark& mark, const Times& times, int64_t own_since, bool contended,
                    bool corrects, int64_t now);
  bool SettleSegment(const Mark& mark, int64_t own, bool contended, int64_t now);
  void LearnOverlap(const Mark& mark, int64_t own);
  void Correct(int64_t difference);
  double PartSince(const Mark& mark, int64_t now) const;
  int64_t Integral(int64_t now, uint32_t* part) const;
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
  int64_t covered_ = 0;   // by outstanding marks
  int64_t unmarked_ = 0;  // launched since the last mark
  int64_t metered_ = 0;
  int64_t settled_at_ = 0, settled_integral_ = 0;  // of the last mark that was settled
  int64_t stretch_ = -1;  // from when work was last begun to the end of the last mark; -1: unknown
  int64_t overlapped_at_ =
      INT64_MIN / 2;    // when a mark was settled that overlapped with other streams
  bool noisy_ = false;  // the key that was timed last
  // Sums over marks that were settled while streams overlapped: their own GPU time, and what they
  // had been charged. Older marks count less and less.
  double overlap_own_ = 0, overlap_covers_ = 0;
  int64_t last_launch_ = 0, last_wait_ = 0, last_limited_ = 0, last_long_ = 0, longest_ = 0;
  int long_out_ = 0, waiting_ = 0;
};

}  // namespace tessera::limiter
