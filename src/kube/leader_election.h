// SPDX-License-Identifier: Apache-2.0
// One of several replicas leads, by a Lease, as client-go has it: whoever holds it renews it; a
// lease that was not renewed for its duration, by the watcher's own clock, may be taken.
//
// Never two at a time: a leader counts `renew_deadline` from before it sent the renewal that
// succeeded, others count the longer `lease_duration` from when they saw it. So the old leader has
// stopped before a new one may start, whatever the network does and however wrong wall clocks are.
// What this cannot see: a machine that stands still and goes on (suspend), where the monotonic
// clock stands still too. Writes that must not come from a past leader ask leading() right before.
//
// Threads: the runner's. Ownership: runner, lease and delegate must outlive it; a delegate may
// destroy it inside any call. Cost: a request per `retry_period` in each replica.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/kube/lease.h"

namespace tessera::kube {

// lease_duration > renew_deadline > 2 * retry_period.
struct ElectionOptions {
  std::string identity;  // of this process, like no other's: host name and something random
  std::chrono::seconds lease_duration{15};
  Duration renew_deadline = std::chrono::seconds(10);
  Duration retry_period = std::chrono::seconds(2);
};
// INVALID_ARGUMENT says which of these does not hold.
Status CheckOptions(const ElectionOptions& options);

class LeaderElector {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    virtual void OnStartedLeading() = 0;
    // All that leading means must have stopped when this returns.
    virtual void OnStoppedLeading(const Status& why) = 0;
    // "" where nobody holds the lease. Also for ourselves.
    virtual void OnLeader(const std::string& identity) = 0;
    // For logs: what is tried again.
    virtual void OnTrouble(const Status& status) = 0;
  };

  // Tries at once, from a task of its own. `seed` is for the jitter. REQUIRES: CheckOptions.
  LeaderElector(TaskRunner& runner, LeaseApi& lease, ElectionOptions options, Delegate& delegate,
                uint64_t seed = std::random_device{}());
  // Does not say that it stopped, and does not give the lease back.
  ~LeaderElector();
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  // By the clock: false from the very moment, also before OnStoppedLeading had its turn.
  bool leading() const;

  // Stops leading, gives the lease back so that another may start at once, and never tries again.
  // `on_done` follows, also where the server did not answer within `renew_deadline`.
  void Release(std::function<void()> on_done);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
