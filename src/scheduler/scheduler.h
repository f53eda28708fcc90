// SPDX-License-Identifier: Apache-2.0
// The whole scheduler extender, put together: election, ledger and feed, verbs, pages. It decides
// nothing itself.
//
// A replica that does not lead knows nothing of the cluster and costs a request for the Lease every
// two seconds. One that begins to lead reads the cluster anew, so it has whatever the one before it
// wrote, and is ready a second or two later; nothing of an older term lives on.
//
// Threads: the runner's. Ownership: runner and io outlive it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/kube/leader_election.h"
#include "src/ledger/feed.h"
#include "src/ledger/ledger.h"
#include "src/net/io_thread.h"
#include "src/net/tls.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/extender.h"

namespace tessera::scheduler {

// A binding without an answer by then has failed; a binding that was not sent by then is not sent.
//   < httpTimeout of the extender in kube-scheduler (5 s in deploy/samples): kube-scheduler gets
//     the error, and does not retry while the first attempt still waits to be sent.
//   < the lease gap, lease_duration - renew_deadline of ElectionOptions (15 s - 10 s): what a
//     leader sends in its last moment has ended before another replica may lead.
//   < kStopPatience: a replica that stops knows what became of each of its bindings.
inline constexpr Duration kBindDeadline = std::chrono::seconds(4);
// How long Stop waits for bindings before it gives the Lease back; below the 15 seconds that the
// Deployment gives a pod to end, with the two requests that follow.
inline constexpr Duration kStopPatience = std::chrono::seconds(6);

struct SchedulerOptions {
  ledger::LedgerOptions ledger;
  ledger::FeedOptions feed;
  ExtenderOptions extender;
  BinderOptions binder;

  std::string kubeconfig;  // "": the pod's service account
  std::string address;     // the verbs, and the status pages
  // Of `address`. Without a certificate the replicas make those of both sides themselves
  // (extender_certificates.h).
  net::TlsOptions tls;
  bool plain_http = false;  // `address` speaks plain HTTP: every caller that reaches it may bind
  std::string metrics_address;  // the status pages alone, plain; "": not
  size_t max_request_bytes = 48 << 20;

  // The admission webhook, over TLS, in every replica; "": not. Its certificates are for the
  // Service in our namespace, and for `webhook_names`, by which API servers call it that do not use
  // the Service.
  std::string webhook_address;
  std::vector<std::string> webhook_names;
  std::string default_runtime_class;  // "": pods are left as they are

  bool leader_elect = true;
  std::string lease_ns;              // "": our own namespace
  kube::ElectionOptions election{};  // the identity is made up where it is empty
  // IP address by which the Service of our namespace shall lead to this replica while it decides
  // (leader_endpoint.h); "": whoever asks knows where to ask.
  std::string advertise_address;
};

class Scheduler {
 public:
  Scheduler(TaskRunner* runner, net::IoThread* io, SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Errors are those that waiting does not mend: nonsense in the options, a port that is taken, no
  // configuration of the API server. The server itself is waited for.
  Status Start();
  // Answers nothing new, lets bindings end, and gives the Lease back, so that another replica may
  // lead at once. If a binding stays without an answer, the Lease is not given back: it expires,
  // and until then no other replica gives the same GPUs away. `on_done` comes within seconds.
  void Stop(std::function<void()> on_done);

  // Where it listens, with the ports that the system chose.
  const net::Address& address() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Makes the runner, runs a scheduler until SIGTERM or SIGINT. Gives the exit code.
int RunScheduler(SchedulerOptions options);

}  // namespace tessera::scheduler
