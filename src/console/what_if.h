// SPDX-License-Identifier: Apache-2.0
// Finds pods that would make room for a waiting pod, and where a pod would fit with another request
// or without another pod. The placement engine answers on the ledger, which is restored afterwards.
//
// Cost of FindPodsToMove: kMaxTries evaluations of one node and kMaxMoves of all nodes. Call it
// when a user requests it, not for each change of the cluster. Threads: call on the ledger's
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/ledger/ledger.h"

namespace tessera::console {

// The nodes that fit the pod or come closest to fitting, with each of their GPUs:
// [{"node":"n1","fits":false,"text":"3 GPUs wanted, 2 of 8 free: …",
//   "gpus":[{"name":"0","reason":"held-whole","text":"…","chosen":false}]}]
// "reason" is "" for a GPU with room; "chosen": the engine would take the GPU. REQUIRES: the ledger
// has not changed since `query` was made.
Json JsonOfNearNodes(ledger::ClusterLedger& ledger, ledger::ClusterLedger::Query& query);

// Pods that would each make room for the waiting pod by leaving their node; the smallest first.
// "otherNodes": to how many nodes the pod could move.
// {"pods":[{"namespace":…,"name":…,"node":…,"request":…,"milli":…,"otherNodes":3,"best":"n7"}],
//  "complete":true}, or false if there are too many pods to try all.
Json FindPodsToMove(ledger::ClusterLedger& ledger, const ledger::PodRequest& request);

// What to change before the pod is evaluated.
struct WhatIf {
  struct ChangedRequest {
    bool whole = true;
    int64_t gpus = 1;           // whole
    int64_t hundredths = 0;     // a part of one GPU
    int64_t memory_blocks = 0;  // a part: n × 256 MiB
  };
  std::optional<ChangedRequest> request;  // nullopt: unchanged
  std::optional<std::string> model;       // "": any; nullopt: unchanged
  std::string without_ns, without_name;   // a pod that is taken away first; "": none
};
Result<WhatIf> ParseWhatIf(const Json& body);

// Where the pod would fit with the changes, in the format of ExplainPod (insight.h). NOT_FOUND:
// there is no pod to take away. FAILED_PRECONDITION if several containers of the pod request GPUs.
// REQUIRES: the ledger has the pod.
Result<Json> AnswerWhatIf(ledger::ClusterLedger& ledger, const Uid& uid, const WhatIf& what_if,
                          bool details);

}  // namespace tessera::console
