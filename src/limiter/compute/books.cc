// SPDX-License-Identifier: Apache-2.0
// The part of Books before a launch: permission and charge. settle.cc has the part after it.
#include "src/limiter/compute/books.h"

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

constexpr int64_t kPoolPause = 250 * kMicrosecond, kStopPause = 100 * kMicrosecond;
constexpr int64_t kMinPause = 50 * kMicrosecond, kMaxPause = kMillisecond;
// An increase of an allowance counts at most this much time since the previous increase. A kernel
// may delay the next launch, so the limit is longer than usual kernels. The limit times a rate of
// 1,000 GPUs fits into 64 bits.
constexpr int64_t kMaxGrowth = 100 * kSecond;
// If no work in flight ends for this time, one launch is made without waiting for the work, and
// then one launch each time that kStalled passes. The time is longer than most kernels take beside
// other processes, because a launch cannot be revoked.
constexpr int64_t kStalled = 5 * kSecond;
// Outstanding marks that no thread has checked for this long may have ended long ago, for example
// while the process was stopped by a signal. The helper thread checks them every millisecond.
constexpr int64_t kFreshTime = 5 * kMillisecond;
// GPU time of a pair of events without a launch between them, until it is measured, and the number
// of such pairs that each process times on a GPU.
constexpr int64_t kUsualEmptyPair = 1'500;
constexpr uint32_t kEmptyPairs = 8;

// Returns a uniform random number in [0, kOne), by xorshift32. A state of 0 is replaced, because
// xorshift32 would never leave it.
uint32_t Random(uint32_t* state) {
  uint32_t x = *state != 0 ? *state : 2463534242u;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  *state = x;
  return x >> 16;
}

// Random, so that the threads of a container do not poll in step.
int64_t RandomPause(uint32_t* random) {
  return 40 * kMicrosecond + 60 * kMicrosecond * Random(random) / kOne;
}

}  // namespace

void Books::Open(const Lines& lines, Prices* prices) {
  lines_ = lines;
  prices_ = prices;
  lock_.Reset();
  settling_.store(false);
  first_ = count_ = 0;
  previous_ = kNoMark;
  for (Mark& mark : marks_) mark.state.store(kFree);
  covered_ = unmarked_ = metered_ = released_at_ = idle_at_ = 0;
  empty_pair_ = kUsualEmptyPair;
  empty_pairs_ = 0;
  last_launch_ = last_wait_ = last_limited_ = last_long_work_ = longest_ = outstanding_long_ =
      waiting_threads_ = 0;
}

bool Books::Leased(int64_t now) const { return lines_.limit->lease_end.load(kRelaxed) > now; }

int64_t Books::Biased(int64_t amount) const {
  const int64_t bias = lines_.limit->bias.load(kRelaxed);
  return bias == 0 ? amount : amount * bias / kOne;
}

bool Books::NoteSpent(ThreadCredit* thread) {
  const bool spent = thread->booked_credit != thread->credit;
  unmarked_ += thread->booked_credit - thread->credit;
  thread->booked_credit = thread->credit;
  return spent;
}

void Books::Refund(ThreadCredit* thread) {
  const SpinGuard guard(&lock_);
  NoteSpent(thread);
  lines_.charge->charged.fetch_sub(Biased(thread->credit), kRelaxed);
  thread->credit = thread->booked_credit = 0;
}

// The process that advances `allowance_at` then adds the gain to the allowance. If it is killed
// between the two steps, its container loses that gain, which is at most the gain of one pause
// between two launches.
void Books::GrowAllowance(int64_t rate, int64_t now) {
  ComputeCharge& charge = *lines_.charge;
  int64_t at = charge.allowance_at.load(kRelaxed);
  if (at == 0) {
    if (charge.allowance_at.compare_exchange_strong(at, now, kRelaxed)) {
      charge.allowance.store(charge.charged.load(kRelaxed), kRelaxed);
    }
    return;
  }
  if (now > at && charge.allowance_at.compare_exchange_strong(at, now, kRelaxed)) {
    charge.allowance.fetch_add(Min(now - at, kMaxGrowth) * rate / kOne, kRelaxed);
  }
  // A process may have to wait during a long kernel of another process. It may save up as much GPU
  // time as its own longest recent launch took, at most 200 ms.
  const int64_t max_allowance =
      charge.charged.load(kRelaxed) + Max(kBucket, Min(longest_, kSecond / 5));
  int64_t allowance = charge.allowance.load(kRelaxed);
  while (allowance > max_allowance &&
         !charge.allowance.compare_exchange_weak(allowance, max_allowance, kRelaxed)) {
  }
}

int64_t Books::PauseForAllowance(int64_t rate, bool leased, int64_t now) {
  const int64_t charged = lines_.charge->charged.load(kRelaxed);
  if (leased && lines_.limit->pool.load(kRelaxed) <= charged) {
    last_wait_ = now;
    return kPoolPause;
  }
  if (rate == 0) return 0;  // there is no limit but the pool
  GrowAllowance(rate, now);
  const int64_t missing = charged - lines_.charge->allowance.load(kRelaxed);
  if (missing < 0) return 0;
  last_limited_ = now;
  // While work is in flight, the pause is short, so that the end of the work is noticed soon. The
  // agent needs the time of that end to compute the part of the GPU that each process gets.
  const int64_t max_pause = covered_ + unmarked_ > 0 ? kPoolPause : kMaxPause;
  return Max(kMinPause, Min(missing * kOne / Max(rate, 1), max_pause));
}

int64_t Books::PauseForWindow(int64_t estimate, uint32_t* random) const {
  const bool low = (lines_.limit->flags.load(kRelaxed) & kComputeLow) != 0;
  const int64_t in_flight = covered_ + unmarked_;
  const int64_t window = int64_t(lines_.limit->window_us.load(kRelaxed)) * kMicrosecond;
  int64_t bound = low ? kLowWindow : window != 0 ? window : kWindow;
  if (!low) bound = Max(bound, estimate * 11 / 5);
  if (in_flight <= 0 || in_flight + Min(estimate, bound) <= bound) return 0;
  return RandomPause(random);
}

// REQUIRES lock_. True: no work in flight has ended for a long time. A launch then no longer waits
// for this work, because the work may wait for the launch: a kernel in flight may poll memory that
// the launching thread or a later kernel writes.
bool Books::IsStalled(int64_t now) const {
  if (count_ == 0) return false;
  const int64_t oldest = marks_[order_[first_]].launched_at;
  return now - Max(oldest, Max(settled_at_, released_at_)) > kStalled;
}

int64_t Books::PauseForWork(ThreadCredit* thread, const Estimate& estimate, int64_t now) {
  if (estimate.awaited) return RandomPause(&thread->random);
  const int64_t wait = PauseForWindow(estimate.time, &thread->random);
  if (wait != 0) last_wait_ = now;
  return wait;
}

int64_t Books::PauseForShare(int64_t now) {
  const bool leased = Leased(now);
  if (leased && (lines_.limit->flags.load(kRelaxed) & kComputeStop) != 0) {
    last_wait_ = now;
    return kStopPause;
  }
  const auto& rate = leased ? lines_.limit->cap : lines_.limit->floor;
  return PauseForAllowance(rate.load(kRelaxed), leased, now);
}

Books::LaunchDecision Books::Decide(ThreadCredit* thread, const Launch& launch, int64_t now) {
  const uint32_t epoch = lines_.limit->epoch.load(std::memory_order_acquire);
  if (epoch != thread->epoch) {
    Refund(thread);
    thread->epoch = epoch;
  }
  if (epoch == 0) return {};
  const SpinGuard guard(&lock_);
  NoteSpent(thread);
  Price* const price = prices_->Add(PriceKey(launch.work));
  const Estimate estimate = EstimateOf(launch, *price);
  if (estimate.priced && thread->credit >= estimate.time) {
    thread->credit -= estimate.time;
    last_launch_ = now;
    return {};
  }
  const bool stalled = IsStalled(now);
  int64_t wait = stalled ? 0 : PauseForWork(thread, estimate, now);
  if (wait == 0) wait = PauseForShare(now);
  if (wait != 0) {
    int mark = ClaimTail(launch.stream, now);
    if (mark == kNoMark) mark = ClaimEmptyPair(launch.stream, now);
    Publish(now);
    return {wait, mark};
  }
  const int64_t slice = price->deviation > estimate.time * 3 / 5 ? kNoisySlice : kSlice;
  if (thread->credit < estimate.time) {
    const int64_t jittered_slice = slice / 2 + slice * Random(&thread->random) / kOne;
    const int64_t take = Max(jittered_slice, estimate.time);
    lines_.charge->charged.fetch_add(Biased(take), kRelaxed);
    thread->credit += take;
  }
  thread->credit -= estimate.time;
  thread->booked_credit = thread->credit;
  if (stalled) released_at_ = now;
  const int mark = ClaimTimed(launch.stream, estimate, slice, price, now);
  if (estimate.priced) longest_ = Max(estimate.time, longest_ - longest_ / 64);
  last_launch_ = now;
  Publish(now);
  return {0, mark};
}

// The first launch of a key has the price of similar launches. While a key has no price, only one
// of its launches is in flight at a time. While no key of a function has a price, only one launch
// of the function is in flight at a time.
Books::Estimate Books::EstimateOf(const Launch& launch, const Price& price) {
  if (price.samples != 0) return {price.price.load(kRelaxed), true, false, false};
  const Prices::Similar similar = prices_->FindSimilar(launch.work);
  const bool guessed = similar.price == kUnpriced;
  const int64_t guess = lines_.charge->unknown_price.load(kRelaxed);
  const int64_t time = guessed ? Max(launch.fallback_price, guess) : similar.price;
  return {time, false, guessed, price.outstanding > 0 || similar.outstanding};
}

// REQUIRES lock_. Claims a mark for a launch that is charged, and timed if a mark is free.
int Books::ClaimTimed(uintptr_t stream, const Estimate& estimate, int64_t slice, Price* price,
                      int64_t now) {
  const int mark = Claim(price->key.load(kRelaxed), stream, unmarked_ + estimate.time, now);
  if (mark == kNoMark) {
    unmarked_ += estimate.time;
    return mark;
  }
  Mark& entry = marks_[mark];
  entry.timed = true;
  usual_time_ = estimate.time;
  entry.guessed = estimate.guessed;
  entry.version = price->version;
  entry.estimate = estimate.time;
  entry.launches = estimate.priced ? Max(1, slice / Max(estimate.time, 1)) : 1;
  entry.long_work = estimate.time > kQuantum * 2 / 5;
  outstanding_long_ += entry.long_work;
  ++price->outstanding;
  return mark;
}

// REQUIRES lock_.
int Books::Claim(uint64_t key, uintptr_t stream, int64_t covers, int64_t now) {
  if (count_ == kMarks) return kNoMark;
  int index = 0;
  while (index < kMarks && marks_[index].state.load(kRelaxed) != kFree) ++index;
  if (index == kMarks) return kNoMark;
  Mark& mark = marks_[index];
  mark.timed = mark.is_empty_pair = mark.guessed = mark.long_work = mark.dropped = false;
  mark.from_idle = covered_ + unmarked_ <= 0;
  mark.kept_busy = count_ != 0 && now - unfinished_at_.load(kRelaxed) < kFreshTime;
  unfinished_at_.store(now, kRelaxed);
  // The work since the previous mark may be in the stream of that mark.
  const bool follows = !mark.from_idle && previous_ != kNoMark;
  mark.overlaps = HasOtherStreams(stream) || (follows && marks_[previous_].stream != stream);
  mark.key = key;
  mark.stream = stream;
  mark.estimate = 0;
  mark.launches = 1;
  mark.covers = covers;
  mark.launched_at = now;
  mark.running_since = mark.charged_running = 0;
  uint32_t part = 0;
  mark.part_integral = PartIntegral(now, &part);
  mark.state.store(kClaimed, kRelaxed);
  covered_ += covers;
  unmarked_ = 0;
  order_[(first_ + count_++) % kMarks] = index;
  if (mark.from_idle) NoteIdle(now);
  return index;
}

// REQUIRES lock_. Claims a mark for a thread that will wait: without a mark, the end of the
// thread's last launches would be noticed only after its next launch.
int Books::ClaimTail(uintptr_t stream, int64_t now) {
  if (unmarked_ <= 0) return kNoMark;
  return Claim(0, stream, unmarked_, now);
}

// REQUIRES lock_. Claims a mark whose events measure the GPU time of a pair of events, unless that
// is known.
int Books::ClaimEmptyPair(uintptr_t stream, int64_t now) {
  if (empty_pairs_ >= kEmptyPairs || count_ != 0) return kNoMark;
  const int mark = Claim(0, stream, 0, now);
  if (mark != kNoMark) marks_[mark].is_empty_pair = true;
  return mark;
}

bool Books::HasOtherStreams(uintptr_t stream) const {
  for (uint32_t i = 0; i < count_; ++i) {
    if (marks_[order_[(first_ + i) % kMarks]].stream != stream) return true;
  }
  return false;
}

void Books::Commit(int mark, bool recorded) {
  const SpinGuard guard(&lock_);
  Mark& entry = marks_[mark];
  const State state = entry.dropped ? kFree : recorded ? kRecorded : kFailed;
  entry.state.store(state, std::memory_order_release);
}

}  // namespace tessera::limiter
