// SPDX-License-Identifier: Apache-2.0
// Assembles the scheduler extender: election, ledger and feed, verbs, status pages. Makes no
// decisions itself.
//
// A standby keeps no state of the cluster and sends a request for the Lease every two seconds. A
// new leader lists the cluster, so it has everything that the previous leader wrote, and is ready
// after a second or two. No state survives a term of leading.
//
// Threads: the runner's. Ownership: runner and io outlive the scheduler.
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

// A binding that has no response within this time fails; a binding that was not sent within this
// time is never sent. The deadline is
//   < httpTimeout of the extender in kube-scheduler (5 s in deploy/samples): kube-scheduler gets
//     the error, and does not retry while the first attempt still waits to be sent.
//   < the lease gap, lease_duration - renew_deadline of ElectionOptions (15 s - 10 s): the last
//     writes of a leader have ended before another replica can lead.
//   < kStopTimeout: a stopping replica knows the outcome of each of its bindings.
inline constexpr Duration kBindDeadline = std::chrono::seconds(4);
// How long Stop waits for bindings before it releases the Lease. Together with the two requests
// that follow it is below the Deployment's termination grace period of 15 seconds.
inline constexpr Duration kStopTimeout = std::chrono::seconds(6);

struct SchedulerOptions {
  ledger::LedgerOptions ledger;
  ledger::FeedOptions feed;
  HoldOptions hold;

  std::string kubeconfig;  // "": the pod's service account
  std::string address;     // serves the verbs and the status pages
  // TLS of `address`. Without a certificate the replicas create the certificates of both sides
  // (extender_certificates.h).
  net::TlsOptions tls;
  bool plain_http = false;      // plain HTTP at `address`: every caller that reaches it can bind
  std::string metrics_address;  // serves only the status pages, over HTTP; "": off
  size_t max_request_bytes = 48 << 20;

  // Serves the admission webhook over TLS in every replica; "": off. Its certificates have the
  // names of the Service in this replica's namespace, and `webhook_names` for API servers that do
  // not use the Service.
  std::string webhook_address;
  std::vector<std::string> webhook_names;
  std::string default_runtime_class;  // "": pods are not changed

  bool leader_elect = true;
  std::string lease_ns;              // "": this replica's namespace
  kube::ElectionOptions election{};  // an empty identity is generated
  // IP address that is published as the Service's endpoint while this replica leads
  // (leader_endpoint.h); "": none is published.
  std::string advertise_address;
  std::string otlp_endpoint;  // of a collector of spans (src/trace/tracer.h); "": nothing is traced
};

class Scheduler {
 public:
  Scheduler(TaskRunner* runner, net::IoThread* io, SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Fails only if a retry would not help: invalid options, a port in use, or no configuration of
  // the API server. If the API server is unreachable, waits for it.
  Status Start();
  // Rejects new requests, waits for pending bindings, and releases the Lease, so that another
  // replica can lead at once. If a binding gets no response, the Lease is not released: it expires,
  // and until then no other replica gives out the same GPUs. Calls `on_done` within seconds.
  void Stop(std::function<void()> on_done);

  // The listening address, with the port that the system chose.
  const net::Address& address() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::scheduler
