// SPDX-License-Identifier: Apache-2.0
// The part of Books after a launch: its events correct its price and its charge.
#include "src/limiter/compute/books.h"

#include <sched.h>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

// Maximum GPU time of a pair of events without a launch. More includes a turn of another process.
constexpr int64_t kMaxEmptyPair = 3 * kMicrosecond;
// A process with more than this part of the GPU had the GPU to itself.
constexpr double kAlone = 0.97;
// How long a process counts as using several streams after its streams overlapped.
constexpr int64_t kOverlapMemory = 50 * kMillisecond;
// From this number of launches on, the order in which streams end their launches hardly matters.
constexpr int64_t kManyLaunches = 8;
// Minimum number of samples in a price with which a new sample is compared.
constexpr uint32_t kTrusted = 3;
// Number of samples from which a deviation is known: it is a mean over about half as many.
constexpr uint32_t kDeviationSamples = 32;
// After this many successive samples that seemed to include turns of other processes, the price
// counts as too low.
constexpr uint32_t kMaxDropped = 12;
// A launch of less than this can run without an interruption by others.
constexpr int64_t kWholeTurn = kQuantum * 97 / 100;

// Price::near if all samples are near the shortest.
constexpr uint16_t kAllNear = 4096;

int64_t Clamp(int64_t value, int64_t low, int64_t high) { return Min(Max(value, low), high); }

// The process's GPU time in the first `elapsed` of a stretch of work that began with its turn:
// whole turns of the process and of others, and then the rest.
int64_t OwnTurns(int64_t elapsed, double part) {
  const double cycle = double(kQuantum) / part;
  const auto turns = double(int64_t(double(elapsed) / cycle));
  const double rest = double(elapsed) - turns * cycle;
  return int64_t(turns * double(kQuantum) + (rest < double(kQuantum) ? rest : double(kQuantum)));
}

// Samples of less than a turn are whole, that is without turns of other processes, if many are
// about as short as the shortest.
void UpdateShortest(Price* price, int64_t pair) {
  if (price->shortest == 0) price->near = kAllNear;
  if (price->shortest == 0 || pair < price->shortest) price->shortest = pair;
  const bool is_near = pair <= price->shortest * 21 / 20;
  price->near = uint16_t((price->near * 15 + (is_near ? kAllNear : 0)) / 16);
  if (!is_near) price->shortest += price->shortest / 256;
}

// `own`: the GPU time that a launch used if the other processes used all of their turns.
void UpdateLeast(Price* price, int64_t own) {
  price->least = Max(price->least, own);
  if (own < price->least * 20 / 21) price->least -= price->least / 64;
}

// True: launches of the key differ, so a long sample need not include turns of other processes.
// Samples of long launches also differ because of such turns. So once the turns are known, the
// deviation decides, which is measured without turns.
bool IsNoisy(const Price& price) {
  if (price.least > 0 && price.shortest >= kWholeTurn && price.samples >= kDeviationSamples) {
    return price.deviation > price.price.load(kRelaxed) / 20;
  }
  return price.samples >= kTrusted && price.near < kAllNear / 6;
}

bool MayBeWhole(const Price& price) {
  return price.shortest < kWholeTurn && !IsNoisy(price) && price.samples >= kTrusted;
}

}  // namespace

// The integral of the process's part of the GPU until now. Without a lease, it is unknown when
// other processes use the GPU, and the part counts as 1: a process may then get less than its
// limit, but not more. If the agent was killed during its write, the part is 0.
int64_t Books::PartIntegral(int64_t now, uint32_t* part) const {
  const ComputePart& line = *lines_.part;
  for (int tries = 0; tries < 100; ++tries) {
    const uint32_t sequence = line.sequence.load(std::memory_order_acquire);
    if (sequence % 2 != 0) continue;
    constexpr auto kAcquire = std::memory_order_acquire;
    *part = line.part.load(kAcquire);
    const int64_t integral = line.part_integral.load(kAcquire), at = line.at.load(kAcquire);
    if (line.sequence.load(kRelaxed) != sequence) continue;
    const int64_t leased_until = Max(Min(now, lines_.limit->lease_end.load(kRelaxed)), at);
    const int64_t leased = integral + (leased_until - at) * *part / kOne;
    if (leased_until < now) *part = kOne;
    return leased + Max(now - leased_until, 0);
  }
  *part = 0;
  return 0;
}

// The mean part of the GPU while a mark's work ran, in (0, 1]: since the previous mark was settled,
// if that mark kept the GPU busy until then, or else since the launch.
double Books::MeanPart(const Mark& mark, int64_t now) const {
  uint32_t part = 0;
  const int64_t integral = PartIntegral(now, &part);
  const bool since_settled =
      mark.kept_busy && settled_at_ > mark.launched_at && now - settled_at_ > 100 * kMicrosecond;
  const int64_t from = since_settled ? settled_at_ : mark.launched_at;
  const int64_t before = since_settled ? settled_integral_ : mark.part_integral;
  if (part == 0 || now <= from) return 1;
  const double mean = double(integral - before) / double(now - from);
  return mean <= 0.01 ? 0.01 : mean > 1 ? 1 : mean;
}

// REQUIRES lock_. Removes the oldest mark from the ring.
void Books::Retire(int index) {
  Mark& mark = marks_[index];
  first_ = (first_ + 1) % kMarks;
  --count_;
  covered_ -= mark.covers;
  outstanding_long_ -= mark.long_work;
  if (mark.timed) {
    if (Price* price = prices_->Find(mark.key); price != nullptr && price->outstanding > 0)
      --price->outstanding;
  }
}

// REQUIRES lock_. The next mark covers the work of a mark without events.
void Books::DropFailed() {
  while (count_ > 0 && marks_[order_[first_]].state.load(std::memory_order_acquire) == kFailed) {
    const int index = order_[first_];
    Retire(index);
    unmarked_ += marks_[index].covers;
    marks_[index].state.store(kFree, kRelaxed);
  }
}

int Books::AcquireOldest() {
  if (settling_.exchange(true, std::memory_order_acquire)) return kNoMark;
  int found = kNoMark;
  {
    const SpinGuard guard(&lock_);
    DropFailed();
    if (count_ > 0 && marks_[order_[first_]].state.load(std::memory_order_acquire) == kRecorded)
      found = order_[first_];
  }
  if (found == kNoMark) Release();
  return found;
}

void Books::Settle(int index, const Times& times, int64_t now) {
  {
    const SpinGuard guard(&lock_);
    Mark& mark = marks_[index];
    Retire(index);
    metered_ += mark.covers;
    // Other processes may have stopped while the work ran.
    const bool contended =
        lines_.part->contended.load(kRelaxed) != 0 || MeanPart(mark, now) < kAlone;
    const int64_t own = OwnTime(mark, times, contended, now);
    const bool settled = SettleSegment(mark, times.segment, own, contended, now);
    if (mark.is_empty_pair && times.pair >= 0) LearnEmptyPair(times.pair);
    if (mark.timed && times.pair >= 0) SettleSample(mark, times, own, contended, !settled, now);
    if (settled || times.pair >= 0) Correct(-mark.charged_running);
    uint32_t part = 0;
    settled_at_ = now;
    settled_integral_ = PartIntegral(now, &part);
    // With several streams, a mark that was launched later may have ended earlier.
    const bool is_last = previous_ == kNoMark || times.segment >= 0;
    if (is_last && previous_ != kNoMark) marks_[previous_].state.store(kFree, kRelaxed);
    mark.state.store(is_last ? kPrevious : kFree, kRelaxed);
    if (is_last) previous_ = index;
    Publish(now);
  }
  Release();
}

void Books::LearnEmptyPair(int64_t pair) {
  empty_pair_ += (Min(pair, kMaxEmptyPair) - empty_pair_) / int64_t(++empty_pairs_);
}

// Once the launch has ended, its measured time replaces this charge.
void Books::ChargeRunning(int index, int64_t now) {
  const SpinGuard guard(&lock_);
  Mark& mark = marks_[index];
  if (!IsUnpriced(mark)) return;
  uint32_t part = 0;
  const int64_t integral = PartIntegral(now, &part);
  if (mark.running_since == 0) {
    mark.running_since = now;
    mark.running_integral = integral;
  }
  const int64_t own =
      part == 0 ? now - mark.running_since : Max(0, integral - mark.running_integral);
  const int64_t more = Min(own, kMaxChargeRunning) - mark.covers - mark.charged_running;
  if (more <= 0) return;
  Correct(more);
  mark.charged_running += more;
}

// A sample longer than its price while other processes use the GPU was probably interrupted by a
// turn. Counts it in price->dropped.
bool Books::DropIfInterrupted(Price* price, int64_t own) const {
  const int64_t usual = price->price.load(kRelaxed);
  if (price->samples < kTrusted) return false;
  const int64_t slack = Max(usual / 5 + 3 * kMicrosecond, price->deviation * 5 / 2);
  if (own <= usual + slack) {
    price->dropped = 0;
    return false;
  }
  if (price->dropped == 0 || own < price->smallest_dropped) price->smallest_dropped = own;
  return ++price->dropped < kMaxDropped;
}

// GPU time of the process between the ends of the last mark and of this mark, or of the launch
// alone if nothing was in flight before. -1: unknown.
int64_t Books::OwnTime(const Mark& mark, const Times& times, bool contended, int64_t now) {
  const int64_t before = stretch_;
  int64_t length = -1;
  if (mark.from_idle && mark.timed) {
    length = stretch_ = times.pair;
  } else if (mark.kept_busy) {
    length = times.segment < 0 ? 0 : times.segment;
    if (stretch_ >= 0) stretch_ += length;
  } else {
    stretch_ = -1;
  }
  if (!contended || length < 0) return length;
  const double part = MeanPart(mark, now);
  if (stretch_ < 0) return int64_t(double(length) * part);
  const int64_t began = mark.from_idle ? 0 : OwnTurns(before, part);
  return Clamp(OwnTurns(stretch_, part) - began, 0, length);
}

void Books::Correct(int64_t difference) {
  metered_ += difference;
  lines_.charge->charged.fetch_add(Biased(difference), kRelaxed);
}

bool Books::Overlaps(int64_t now) const { return now - overlapped_at_ < kOverlapMemory; }

// While a process keeps the GPU busy, the time between the ends of two marks is exactly the time of
// all work between them, even if streams overlap. While other processes use the GPU, the process's
// part of that time is known only on average; with one stream, samples are better.
bool Books::SettleSegment(const Mark& mark, int64_t segment, int64_t own, bool contended,
                          int64_t now) {
  const Price* price = mark.timed ? prices_->Find(mark.key) : nullptr;
  if (price != nullptr) noisy_ = IsNoisy(*price);
  const bool overlaps = mark.overlaps || Overlaps(now);
  // A mark that times no launch and was claimed while work was in flight proves no overlap.
  // Otherwise short programs of two streams, which hardly overlap, would exceed their limits.
  if (mark.overlaps && (mark.timed || !mark.kept_busy)) overlapped_at_ = now;
  // If it is not known whether the process kept the GPU busy, its work took at most `segment`,
  // provided that only few of its launches can still run in other streams.
  const bool bounds = overlaps && segment >= 0 && mark.covers >= kManyLaunches * usual_time_;
  if (bounds && !mark.kept_busy && !mark.from_idle) own = Min(segment, mark.covers);
  if ((contended && !overlaps && !noisy_) || own < 0) return false;
  Correct(own - mark.covers);
  if (overlaps) LearnOverlap(mark, own);
  return true;
}

void Books::AddOverlap(int64_t own, int64_t covers) {
  overlap_own_ = overlap_own_ * 7 / 8 + double(own);
  overlap_covers_ = overlap_covers_ * 7 / 8 + double(covers);
}

// A launch that overlaps with others takes longer than the GPU time that it uses. The price of each
// sampled key is scaled towards the GPU time that all of them used together.
void Books::LearnOverlap(const Mark& mark, int64_t own) {
  AddOverlap(own, mark.covers);
  Price* price = mark.timed ? prices_->Find(mark.key) : nullptr;
  if (price == nullptr || price->version != mark.version) return;
  if (price->samples < kTrusted || overlap_covers_ <= 0) return;
  const double ratio = overlap_own_ / overlap_covers_;
  const double bounded = ratio < 0.25 ? 0.25 : ratio > 4 ? 4 : ratio;
  const int64_t old = price->price.load(kRelaxed);
  price->price.store(Max(1, int64_t(double(old) * (1 + (bounded - 1) / 8))), kRelaxed);
}

// GPU time of a long launch, from the mean part of the GPU that its process had.
int64_t Books::WithMeanPart(const Mark& mark, int64_t pair, int64_t own_since_mark,
                            int64_t now) const {
  const bool only = own_since_mark >= 0 && mark.covers == mark.estimate;
  return only ? Min(pair, own_since_mark) : int64_t(double(pair) * MeanPart(mark, now));
}

// GPU time of a long launch without the turns of other processes. The number of turns follows from
// the mean part. This is exact where the mean part alone is not: if all containers are at their own
// limits and the GPU is idle in between, the launches of two containers can meet in the same way
// for seconds, at times that the agent's ticks miss. As long as the launches of a key do not seem
// to differ, no launch uses more than the shortest sample, nor less than `least`.
int64_t Books::WithoutTurns(const Mark& mark, int64_t pair, int64_t own_since_mark, int64_t now,
                            Price* price) const {
  const uint32_t processes = lines_.part->processes.load(kRelaxed);
  if (mark.from_idle && processes > 0) UpdateLeast(price, OwnTurns(pair, 1.0 / processes));
  const bool differ = price->least > price->shortest * 11 / 10;
  if (processes == 0 || price->samples < kTrusted || price->shortest < kWholeTurn || differ) {
    return WithMeanPart(mark, pair, own_since_mark, now);
  }
  const double turns = double(pair) * (1 - MeanPart(mark, now)) / double(kQuantum);
  const int64_t own = pair - Min(int64_t(turns + 0.5), (pair - 1) / kQuantum) * kQuantum;
  const bool agree = price->least > price->shortest * 4 / 5;
  return Min(agree ? Max(own, price->least) : own, price->shortest);
}

int64_t Books::Bounded(const Mark& mark, int64_t own, bool contended) {
  if (mark.launches <= 2) return own;
  return Clamp(own, mark.estimate / 4, mark.estimate * (contended ? 4 : 32));
}

// `corrects`: the sample corrects the charge too, not only the price.
void Books::SettleSample(const Mark& mark, const Times& times, int64_t own_since_mark,
                         bool contended, bool corrects, int64_t now) {
  Price* price = prices_->Find(mark.key);
  int64_t own = Max(times.pair - empty_pair_, 300);
  // The function or graph is gone or has changed since the launch.
  if (price == nullptr || price->version != mark.version) {
    if (contended && own > kQuantum / 2) own = WithMeanPart(mark, own, own_since_mark, now);
    own = Bounded(mark, own, contended);
    if (corrects) Correct((own - mark.estimate) * mark.launches);
    return;
  }
  if (Overlaps(now) && price->samples >= kTrusted) return;
  UpdateShortest(price, own);
  if (contended) {
    if (!price->is_long && !IsNoisy(*price) && DropIfInterrupted(price, own)) return;
    if (price->is_long && MayBeWhole(*price) && own > price->shortest * 6 / 5) return;
    if (price->dropped >= kMaxDropped) {
      own = price->smallest_dropped;
      price->dropped = 0;
    } else if ((price->is_long || price->samples < kTrusted || IsNoisy(*price)) &&
               own > kQuantum / 2 && !MayBeWhole(*price)) {
      own = WithoutTurns(mark, own, own_since_mark, now, price);
    }
  }
  own = Bounded(mark, own, contended);
  if (corrects) Correct((own - mark.estimate) * mark.launches);
  if (mark.guessed) {
    longest_ = Max(longest_, own);
    auto& unknown = lines_.charge->unknown_price;
    const int64_t guess = unknown.load(kRelaxed);
    unknown.store(guess + (own - guess) / 4, kRelaxed);
  }
  Prices::Learn(price, own);
  // The samples of interrupted launches vary, so `is_long` is set and cleared at different prices.
  const int64_t learned = price->price.load(kRelaxed);
  price->is_long = learned > kQuantum * (price->is_long ? 5 : 8) / 10;
}

void Books::NoteIdle(int64_t now) {
  idle_at_ = now;
  idle_metered_ = metered_;
}

// All work that a thread waited for has ended, `unmarked` nanoseconds of it without a mark. Streams
// that overlap used at most the time since idle_at_.
void Books::BoundByElapsed(int64_t unmarked, int64_t now) {
  const int64_t excess = metered_ - idle_metered_ - (now - idle_at_);
  if (idle_at_ != 0 && excess > 0 && Overlaps(now)) {
    AddOverlap(Max(unmarked - excess, 0), unmarked);
    Correct(-excess);
  }
  if (covered_ <= 0) NoteIdle(now);
}

// Counts the work that the thread has launched from its slice as in flight. Programs that wait for
// each short batch never exhaust a slice, so they launch only such work.
void Books::BeginWait(ThreadCredit* thread, int64_t now) {
  const SpinGuard guard(&lock_);
  if (NoteSpent(thread)) last_launch_ = now;
  ++waiting_threads_;
  Publish(now);
}

void Books::EndWait(ThreadCredit* thread, Waited waited, int64_t now) {
  const SpinGuard guard(&lock_);
  if (waiting_threads_ > 0) --waiting_threads_;
  if (waited == Waited::kNot) return;
  NoteSpent(thread);
  const bool one_stream = count_ == 0 || !HasOtherStreams(marks_[order_[first_]].stream);
  if (waited == Waited::kAll || one_stream) {
    const int64_t unmarked = unmarked_;
    metered_ += unmarked;
    unmarked_ = 0;
    if (waited == Waited::kAll) BoundByElapsed(unmarked, now);
  }
  Publish(now);
}

// Work after the last mark for which no thread waits counts as ended when the process has had its
// part of the GPU for 1.5 times the length of the work.
void Books::Poll(int64_t now) {
  const SpinGuard guard(&lock_);
  if (count_ == 0 && unmarked_ > 0 && waiting_threads_ == 0) {
    uint32_t part = 0;
    (void)PartIntegral(now, &part);
    const double rate = part == 0 ? 1 : double(part) / kOne;
    if (double(now - last_launch_) > 1.5 * double(unmarked_) / rate + double(kMillisecond)) {
      metered_ += unmarked_;
      unmarked_ = 0;
    }
  }
  Publish(now);
}

void Books::Forget(const Work& work) {
  const SpinGuard guard(&lock_);
  prices_->Forget(work);
}

void Books::ForgetAll() {
  const SpinGuard guard(&lock_);
  prices_->ForgetAll();
}

// REQUIRES lock_.
bool Books::IsUnpriced(const Mark& mark) const {
  const Price* price = mark.timed ? prices_->Find(mark.key) : nullptr;
  return price != nullptr && price->samples == 0;
}

bool Books::HasUnpriced() {
  const SpinGuard guard(&lock_);
  for (uint32_t i = 0; i < count_; ++i) {
    if (IsUnpriced(marks_[order_[(first_ + i) % kMarks]])) return true;
  }
  return false;
}

// Waits until no thread queries the events of a mark.
void Books::DropMarks(int64_t now) {
  while (settling_.exchange(true, std::memory_order_acquire)) ::sched_yield();
  {
    const SpinGuard guard(&lock_);
    while (count_ > 0) {
      Mark& mark = marks_[order_[first_]];
      metered_ += mark.covers;
      if (IsUnpriced(mark)) {
        const double elapsed = double(now - mark.launched_at) * MeanPart(mark, now);
        Correct(Max(0, int64_t(elapsed) - mark.covers - mark.charged_running));
      }
      mark.dropped = mark.state.load(kRelaxed) == kClaimed;
      Retire(order_[first_]);
      if (!mark.dropped) mark.state.store(kFree, kRelaxed);
    }
    if (previous_ != kNoMark) marks_[previous_].state.store(kFree, kRelaxed);
    previous_ = kNoMark;
    metered_ += unmarked_;
    unmarked_ = 0;
    stretch_ = -1;
  }
  Release();
}

// REQUIRES lock_.
void Books::Publish(int64_t now) {
  ComputeSlot& slot = *lines_.slot;
  int64_t in_flight = covered_ + unmarked_;
  if (outstanding_long_ > 0) last_long_work_ = now;
  // Whether a launch without a price is long is known only after it has run for some time. Until
  // then the agent overestimates the other processes' parts of the GPU.
  if (count_ > 0) {
    const Mark& oldest = marks_[order_[first_]];
    if (now - oldest.launched_at > kQuantum && IsUnpriced(oldest)) {
      last_long_work_ = now;
      in_flight = Max(in_flight, kQuantum);
    }
  }
  slot.metered.store(metered_, kRelaxed);
  slot.in_flight.store(in_flight, kRelaxed);
  slot.last_launch.store(last_launch_, kRelaxed);
  slot.last_long_work.store(last_long_work_, kRelaxed);
  slot.last_wait.store(last_wait_, kRelaxed);
  slot.last_limited.store(last_limited_, kRelaxed);
  slot.longest.store(longest_, kRelaxed);
  slot.last_written.store(now, kRelaxed);
}

}  // namespace tessera::limiter
