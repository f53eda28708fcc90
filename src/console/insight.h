// SPDX-License-Identifier: Apache-2.0
// Answers of the placement engine as JSON: whether a workload fits, why a pod waits or is on its
// node, and how much of the quotas is used. Evaluates nodes as the scheduler does, and restores the
// ledger afterwards. Threads: call on the ledger's thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "src/console/workload.h"
#include "src/formats/json.h"
#include "src/kube/objects.h"
#include "src/ledger/ledger.h"

namespace tessera::console {

// Returns how many nodes fit a pod of the manifest, the reasons of the other nodes, and the
// namespace's quota. For several replicas, also returns how many of them fit at the same time
// ("roomFor"), and tries at most 50. Pass `with_quota` only if the user may list the pods of the
// namespace, because the result then shows how much of its quota the namespace uses.
// INVALID_ARGUMENT for a request that breaks a rule of its resource names (device/dialects.h).
Result<Json> Preview(ledger::ClusterLedger& ledger, const Manifest& manifest, bool with_quota);

// One line about all nodes: "0/3 nodes have room: 2 too few GPUs, 1 unschedulable", or "3/3 nodes
// have room, but taint team=ml:NoSchedule is not tolerated".
std::string SummaryOf(ledger::ClusterLedger& ledger, ledger::ClusterLedger::Query& query);

// Adds to `out` how many nodes fit and the reasons of the other nodes. `details`, for users who may
// list all nodes and pods: also the names of nodes, reasons that may name other pods, the best
// nodes, and the GPUs of the nodes that come closest to fitting (JsonOfNearNodes).
void AddEvaluation(ledger::ClusterLedger& ledger, ledger::ClusterLedger::Query& query, bool details,
                   Json* out);

// Returns why the pod waits, or how its node compares with other nodes. `details` as above.
// REQUIRES: the ledger has the pod.
Json ExplainPod(ledger::ClusterLedger& ledger, const Uid& uid, bool details);

// Removes a pod from the ledger for the lifetime of this object.
class WithoutPod {
 public:
  // REQUIRES: the ledger has the pod.
  WithoutPod(ledger::ClusterLedger& ledger, const Uid& uid)
      : ledger_(ledger), pod_(ledger.TakeOut(uid)) {}
  ~WithoutPod() { ledger_.PutBack(std::move(pod_)); }
  WithoutPod(const WithoutPod&) = delete;
  WithoutPod& operator=(const WithoutPod&) = delete;

  const ledger::PodEntry& pod() const { return pod_; }

 private:
  ledger::ClusterLedger& ledger_;
  ledger::PodEntry pod_;
};

// The use and the limit of each model in each namespace that `visible` accepts.
Json JsonOfQuotas(const ledger::ClusterLedger& ledger,
                  const std::function<bool(const std::string& ns)>& visible);

// What the placed pods hold in each namespace that `visible` accepts, in descending order of milli:
// [{"namespace":"ns","pods":2,"milli":1300,"bytes":85899345920}].
Json JsonOfHeld(const ledger::ClusterLedger& ledger,
                const std::function<bool(const std::string& ns)>& visible);

// The models of the cluster's GPUs, sorted.
Json JsonOfModels(const ledger::ClusterLedger& ledger);

}  // namespace tessera::console
