// SPDX-License-Identifier: Apache-2.0
// Questions beyond "why does this pod wait": what would make room for it, and where it would fit
// with another request or without another pod. Answered by the placement engine on the ledger,
// which is afterwards as it was.
//
// Cost: kMaxTries evaluations of one node and kMaxMoves of all nodes; MeasureRoom is asked by
// people, not for each change of the cluster. Threads: as the ledger.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/ledger/ledger.h"

namespace tessera::console {

// The nodes that come closest, with each of their GPUs:
// [{"node":"n1","fits":false,"text":"3 GPUs wanted, 2 of 8 free: …",
//   "gpus":[{"name":"0","reason":"held-whole","text":"…","chosen":false}]}]
// "reason" is "" for a GPU with room; "chosen": the engine would take it. REQUIRES: a query of the
// present ledger.
Json JsonOfNearNodes(ledger::ClusterLedger& ledger, ledger::ClusterLedger::Query& query);

// Single pods whose end makes room for a waiting pod on their node, the smallest first, and to how
// many other nodes each could move:
// {"pods":[{"namespace":…,"name":…,"node":…,"request":…,"milli":…,"otherNodes":3,"best":"n7"}],
//  "complete":true}. Not complete: too many were possible to try all.
Json MeasureRoom(ledger::ClusterLedger& ledger, const ledger::PodRequest& request);

// A changed request of a pod.
struct WhatIf {
  struct ChangedRequest {
    bool whole = true;
    int64_t gpus = 1;           // whole
    int64_t hundredths = 0;     // a part of one GPU
    int64_t memory_blocks = 0;  // a part: n × 256 MiB
  };
  std::optional<ChangedRequest> request;  // nullopt: as it is
  std::optional<std::string> model;       // "": any
  std::string without_ns, without_name;   // a pod that is taken away first; "": none
};
Result<WhatIf> ParseWhatIf(const Json& body);

// Where the pod would fit with the changed request, as ExplainPod (insight.h) says it. NOT_FOUND:
// there is no pod to take away. FAILED_PRECONDITION if several containers of the pod request GPUs.
// REQUIRES: the ledger has the pod.
Result<Json> AnswerWhatIf(ledger::ClusterLedger& ledger, const Uid& uid, const WhatIf& what_if,
                          bool details);

}  // namespace tessera::console
