// SPDX-License-Identifier: Apache-2.0
// The extender's pages: requests to decisions and back, for our own prefix and for the two older
// extenders, whose configurations go on working.
//
//   /v1/extender/{filter,prioritize,bind,preempt}       ours
//   /gpushare-scheduler/{filter,prioritize,bind,preempt,inspect,inspect/NODE}
//                                                       gpushare's: a failed bind is HTTP 500
//   /scheduler/{predicates,priorities}                  gpu-admission's: one node
//   /version
//
// Threads: the runner's. Ownership: metrics and clock outlive the router.
#pragma once

#include <functional>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/extender.h"
#include "src/scheduler/metrics.h"
#include "src/scheduler/router.h"

namespace tessera::scheduler {

inline constexpr std::string_view kExtenderPrefix = "/v1/extender";
inline constexpr std::string_view kGpusharePrefix = "/gpushare-scheduler";
inline constexpr std::string_view kGpuAdmissionPrefix = "/scheduler";

// What decides now.
struct Deciders {
  Extender* extender = nullptr;
  const ledger::ClusterLedger* ledger = nullptr;
};
// UNAVAILABLE says why nothing can be decided: not the leader, not synced. Asked for each request.
using GetDeciders = std::function<Result<Deciders>()>;

// How many requests that bind are sent to the API server at a time; more wait for these.
// kube-scheduler waits five seconds for each.
inline constexpr size_t kBindsInFlight = 128;

// Of a server for the verbs. kube-scheduler holds a connection for each binding that it waits for,
// with no bound on them, and asks about the next pod on another one.
net::ServerLimits LimitsOfVerbs(size_t max_request_bytes);

void AddVerbs(GetDeciders get, const Clock& clock, SchedulerMetrics& metrics, Router* router);

}  // namespace tessera::scheduler
