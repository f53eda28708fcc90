// SPDX-License-Identifier: Apache-2.0
// Elects one leader among replicas by a Lease, with the protocol of client-go: the holder renews
// the Lease; another replica may acquire it if it was not renewed for `lease_duration`. Each
// replica measures this time by its own clock.
//
// Two replicas never lead at the same time. A leader counts `renew_deadline` from the moment before
// it sent its last successful renewal. Other replicas count the longer `lease_duration` from the
// moment when they observed that renewal. So the old leader has stopped before a new leader starts,
// regardless of the network and of wall clocks. Between two leaders lies the lease gap,
// lease_duration - renew_deadline, in which no replica leads. Limitation: on a machine that is
// suspended, the monotonic clock stands still, and its replica may lead for too long after it
// resumes. Check leading() immediately before each write that only a leader may make.
//
// Threads: the runner's. Ownership: runner, lease and delegate outlive the elector; a delegate may
// destroy the elector inside any call. Cost: one request per `retry_period` in each replica.
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
  std::string identity;  // unique to this process: host name and random text
  std::chrono::seconds lease_duration{15};
  Duration renew_deadline = std::chrono::seconds(10);
  Duration retry_period = std::chrono::seconds(2);
};
// The name of this machine or pod; "unknown" if the system has none.
std::string HostName();
// HostName and a random text.
std::string MakeElectionIdentity();
// INVALID_ARGUMENT names the violated condition.
Status CheckElectionOptions(const ElectionOptions& options);

class LeaderElector {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    virtual void OnStartedLeading() = 0;
    // The replica must have stopped acting as leader when this returns.
    virtual void OnStoppedLeading(const Status& why) = 0;
    // The holder has changed, possibly to this replica. "": the lease has no holder.
    virtual void OnLeader(const std::string& identity) = 0;
    // For logs: an error that is retried.
    virtual void OnError(const Status& status) = 0;
  };

  // Tries to acquire at once, in its own task. `seed` is for the jitter. REQUIRES:
  // CheckElectionOptions returns OK.
  LeaderElector(TaskRunner& runner, LeaseApi& lease, ElectionOptions options, Delegate& delegate,
                uint64_t seed = std::random_device{}());
  // Neither calls OnStoppedLeading nor releases the lease.
  ~LeaderElector();
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  // Reads the clock: false once the renew deadline has passed, even before OnStoppedLeading is
  // called.
  bool leading() const;

  // Stops leading, and releases the lease so that another replica can acquire it at once. This
  // replica never acquires the lease again. Calls `on_done` afterwards, also if the server does not
  // answer within `renew_deadline`.
  void Release(std::function<void()> on_done);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
