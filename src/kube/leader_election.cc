// SPDX-License-Identifier: Apache-2.0
#include "src/kube/leader_election.h"

#include <unistd.h>

#include <optional>
#include <random>
#include <utility>

namespace tessera::kube {

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::string MakeElectionIdentity() {
  std::random_device random;
  return fmt::format("{}_{:08x}{:08x}", HostName(), random(), random());
}

Status CheckElectionOptions(const ElectionOptions& options) {
  if (options.identity.empty())
    return Error(Code::kInvalidArgument, "leader election: the identity is empty");
  if (options.retry_period <= Duration::zero() ||
      options.renew_deadline <= 2 * options.retry_period) {
    return Error(Code::kInvalidArgument,
                 "leader election: the renew deadline must be longer than two retry periods");
  }
  if (options.lease_duration <= options.renew_deadline) {
    return Error(Code::kInvalidArgument,
                 "leader election: the lease duration must be longer than the renew deadline");
  }
  return Status::Ok();
}

// Makes one attempt at a time: reads the Lease unless it is known, then creates or updates it.
// `attempt` numbers the attempts, so that responses to abandoned attempts are ignored. Calls of the
// delegate come last in a function, because the delegate may destroy the elector; `delegate` is
// null afterwards.
struct LeaderElector::Core : public std::enable_shared_from_this<LeaderElector::Core> {
  Core(TaskRunner& r, LeaseApi& l, ElectionOptions o, Delegate& d, uint64_t seed)
      : runner(r), lease(l), options(std::move(o)), delegate(&d), random(seed) {}

  MonotonicTime Now() const { return runner.clock().Now(); }
  bool Leading() const { return leads && Now() < valid_until; }

  void RunLater(Duration delay, void (Core::*method)()) {
    runner.PostDelayed(delay, [weak = weak_from_this(), method, number = attempt] {
      const auto self = weak.lock();
      if (self && self->delegate && self->attempt == number) (self.get()->*method)();
    });
  }

  LeaseApi::Done CallbackTo(void (Core::*method)(const Result<LeaseObject>&)) {
    return [weak = weak_from_this(), method, number = attempt](const Result<LeaseObject>& answer) {
      const auto self = weak.lock();
      if (self && self->delegate && self->attempt == number) (self.get()->*method)(answer);
    };
  }

  void RenewOrAcquire() {
    ++attempt;
    RunLater(options.renew_deadline / 2, &Core::GiveUpAttempt);
    // A leader knows the lease, so it does not read it first.
    if (leads && observed && !read_first) return WriteLease(*observed);
    lease.Get(CallbackTo(&Core::OnLease));
  }

  void GiveUpAttempt() {
    lease.Cancel();
    read_first = true;
    RetryLater(Error(Code::kDeadlineExceeded, "the lease: no response in time"));
  }

  void OnLease(const Result<LeaseObject>& answer) {
    read_first = false;
    if (answer.ok()) {
      const std::string holder = answer->holder;
      if (!Observe(*answer)) return;
      const bool free =
          holder.empty() || holder == options.identity || Now() >= observed_at + observed->duration;
      if (free) return WriteLease(*observed);
      if (leads) return StepDown(Error(Code::kAborted, "the lease was taken by {}", holder));
      return RetryLater(Status::Ok());
    }
    if (answer.status().code() != Code::kNotFound) return RetryLater(answer.status());
    WriteLease({});
  }

  // Returns false if the delegate has destroyed the elector.
  bool Observe(const LeaseObject& current) {
    const auto is_same = [&](const LeaseObject& known) {
      return known.holder == current.holder && known.renew_time == current.renew_time &&
             known.acquire_time == current.acquire_time &&
             known.transitions == current.transitions && known.duration == current.duration;
    };
    const bool new_leader = !observed || observed->holder != current.holder;
    // renewTime comes from another machine's clock. As in client-go, a lease lasts from the moment
    // when this replica observed the renewal.
    if (!observed || !is_same(*observed)) observed_at = Now();
    observed = current;
    if (new_leader) delegate->OnLeader(std::string(current.holder));
    return delegate != nullptr;
  }

  void WriteLease(const LeaseObject& from) {
    const bool is_holder = from.holder == options.identity;
    const WallTime wall = runner.clock().WallNow();
    LeaseObject next = from;
    next.holder = options.identity;
    next.duration = options.lease_duration;
    next.renew_time = wall;
    if (!is_holder || from.acquire_time == WallTime{}) next.acquire_time = wall;
    const bool create = from.meta.resource_version.empty();
    if (!is_holder && !create) ++next.transitions;
    sent_at = Now();
    if (create) return lease.Create(next, CallbackTo(&Core::OnWritten));
    lease.Update(next, CallbackTo(&Core::OnWritten));
  }

  void OnWritten(const Result<LeaseObject>& answer) {
    if (!answer.ok()) {
      // Another replica wrote the lease, or this write succeeded but its response was lost.
      read_first = true;
      return RetryLater(answer.status());
    }
    valid_until = sent_at + options.renew_deadline;
    // A response after the renew deadline does not make this replica the leader; the next renewal
    // does.
    const bool becomes_leader = !leads && Now() < valid_until;
    leads = leads || becomes_leader;
    if (!Observe(*answer)) return;
    RetryLater(Status::Ok());
    if (delegate == nullptr || !leads) return;
    WatchDeadline();
    if (becomes_leader) delegate->OnStartedLeading();
  }

  void WatchDeadline() {
    runner.PostDelayed(valid_until - Now(), [weak = weak_from_this(), until = valid_until] {
      const auto self = weak.lock();
      if (!self || !self->delegate || !self->leads || self->valid_until != until) return;
      self->StepDown(Error(Code::kDeadlineExceeded, "the lease was not renewed in time"));
    });
  }

  void StepDown(const Status& why) {
    leads = false;
    read_first = true;
    lease.Cancel();
    // A pending request may still take effect, so read the lease again.
    RetryLater(Status::Ok());
    if (delegate != nullptr) delegate->OnStoppedLeading(why);
  }

  void RetryLater(const Status& error) {
    ++attempt;
    if (released) return;
    std::uniform_real_distribution<double> jitter(1.0, 1.2);
    const double factor = leads ? 1.0 : jitter(random);
    RunLater(std::chrono::duration_cast<Duration>(options.retry_period * factor),
             &Core::RenewOrAcquire);
    if (!error.ok()) delegate->OnError(error);
  }

  void Release(std::function<void()> on_done) {
    released = true;
    ++attempt;
    lease.Cancel();
    const bool is_leader = leads && observed;
    if (leads) StepDown(Error(Code::kCancelled, "the lease was released"));
    if (!is_leader || delegate == nullptr) return runner.Post(std::move(on_done));
    LeaseObject next = *observed;
    next.holder.clear();
    // The shortest valid duration; client-go releases a Lease with the same value.
    next.duration = std::chrono::seconds(1);
    next.renew_time = runner.clock().WallNow();
    // The answer and the timer share the callback; the first of them calls it.
    const auto pending = std::make_shared<std::function<void()>>(std::move(on_done));
    const auto finish = [pending] {
      if (const auto done = std::exchange(*pending, nullptr)) done();
    };
    runner.PostDelayed(options.renew_deadline, finish);
    lease.Update(next, [finish](const Result<LeaseObject>&) { finish(); });
  }

  TaskRunner& runner;
  LeaseApi& lease;
  const ElectionOptions options;
  Delegate* delegate;
  std::minstd_rand random;
  uint64_t attempt = 0;
  bool leads = false;
  bool read_first = false;  // `observed` may be outdated
  bool released = false;
  MonotonicTime sent_at{};      // when the pending write was sent
  MonotonicTime valid_until{};  // leads until then unless it renews
  std::optional<LeaseObject> observed;
  MonotonicTime observed_at{};  // when a change of the lease was last observed
};

LeaderElector::LeaderElector(TaskRunner& runner, LeaseApi& lease, ElectionOptions options,
                             Delegate& delegate, uint64_t seed)
    : core_(std::make_shared<Core>(runner, lease, std::move(options), delegate, seed)) {
  TESSERA_CHECK(CheckElectionOptions(core_->options).ok());
  core_->RunLater(Duration::zero(), &Core::RenewOrAcquire);
}

LeaderElector::~LeaderElector() {
  core_->delegate = nullptr;
  core_->lease.Cancel();
}

bool LeaderElector::leading() const { return core_->Leading(); }

void LeaderElector::Release(std::function<void()> on_done) {
  const auto keep_alive = core_;
  keep_alive->Release(std::move(on_done));
}

}  // namespace tessera::kube
