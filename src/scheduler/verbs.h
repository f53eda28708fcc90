// SPDX-License-Identifier: Apache-2.0
// The HTTP paths of the extender: Tessera's own paths, and the paths of two older extenders, whose
// configurations continue to work.
//
//   /v1/extender/{filter,prioritize,bind,preempt}       Tessera
//   /gpushare-scheduler/{filter,prioritize,bind,preempt,inspect,inspect/NODE}
//                                                       gpushare; a failed bind is HTTP 500
//   /scheduler/{predicates,priorities}                  gpu-admission; filters to one node
//   /version
//
// Threads: the runner's. Ownership: metrics and clock outlive the router.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/extender.h"
#include "src/scheduler/metrics.h"
#include "src/scheduler/router.h"
#include "src/trace/span.h"

namespace tessera::scheduler {

inline constexpr std::string_view kExtenderPrefix = "/v1/extender";
inline constexpr std::string_view kGpusharePrefix = "/gpushare-scheduler";
inline constexpr std::string_view kGpuAdmissionPrefix = "/scheduler";

// The objects of the current term of leading (term.h).
struct ActiveTerm {
  Extender* extender = nullptr;
  const ledger::ClusterLedger* ledger = nullptr;
};
// UNAVAILABLE states why no decision is possible: not the leader, not synced. Called for each
// request.
using GetActiveTerm = std::function<Result<ActiveTerm>()>;

// The maximum number of concurrent binding requests to the API server; further requests wait.
// kube-scheduler waits five seconds for each.
inline constexpr size_t kMaxBindsInFlight = 128;

// Limits of a server for the verbs. kube-scheduler uses one connection for each pending binding,
// without a bound, and another connection for the next pod.
net::ServerLimits LimitsOfVerbs(size_t max_request_bytes);

// `record_span` may be null; filter and bind are then not traced.
void AddVerbs(GetActiveTerm get_active_term, const Clock& clock, SchedulerMetrics& metrics,
              trace::SpanRecorder record_span, Router* router);

// Usage of each GPU by pods, in the format of gpushare's extender:
//
//   {"nodes":[{"name","totalGPU","usedGPU","devs":[{"id","totalGPU","usedGPU",
//                                                   "pods":[{"name","namespace","usedGPU"}]}]}]}
//
// "GPU" counts units of device memory, GiB or MiB. A GPU that is held whole counts as fully used.
// Returns all nodes with GPUs, or only `node`; an unknown node gives "error". Cost: a pass over
// nodes and pods.
std::string Inspect(const ledger::ClusterLedger& ledger, std::string_view node);

}  // namespace tessera::scheduler
