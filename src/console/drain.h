// SPDX-License-Identifier: Apache-2.0
// Drains a node with the rights of a user: cordons the node and evicts its pods through the API
// server. A dry run does not cordon, and sends evictions with dryRun. It shows the user which pods
// would be evicted, and which evictions a PodDisruptionBudget or RBAC refuses. A dry run checks
// each eviction alone: a budget that allows one more disruption allows the dry run of each pod.
//
// These pods stay, as with `kubectl drain --ignore-daemonsets`: pods of DaemonSets, which would
// come back at once; static pods; and pods that have ended. Without `force` two more kinds stay,
// because they would be lost: pods without a controller, and pods with local data (emptyDir).
//
// The drain does not wait until the pods are gone; the live view shows when they are. A rejected
// eviction is not retried.
//
// Threads: the client's runner. Bounds: kMaxPods, kMaxParallelEvictions evictions at once.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/console/sessions.h"
#include "src/formats/json.h"

namespace tessera::console {

struct DrainOptions {
  std::string node;
  bool dry_run = true;
  bool force = false;
};

// Why a pod stays: "daemonset", "static", "ended", "unmanaged" or "local-data"; "" if it is
// evicted.
std::string_view ReasonToStay(const Json& pod, bool force);

class Drain {
 public:
  static constexpr size_t kMaxPods = 1000;
  static constexpr size_t kMaxParallelEvictions = 2;
  using Done = std::function<void(Result<Json>)>;

  // Starts the drain. Calls `done` once, later, but not after this object is destroyed, with
  // {"pods":[{"namespace":…,"name":…,"owner":"ReplicaSet/x","result":…,"why":…}]}. `result` is
  // "stays", "evicted" (in a dry run: would be), "refused" by a budget, or "failed". `done` must
  // not destroy this object.
  Drain(std::shared_ptr<WebSession> session, DrainOptions options, Done done);

 private:
  struct DrainedPod {
    std::string ns, name, owner;
    std::string result, why;
  };
  void Cordon();
  void List(std::string continue_token);
  void OnList(const Result<kube::ListPage>& page);
  void AddPod(const Json& pod);
  void EvictNext();
  void OnEvicted(DrainedPod& pod, const Result<Json>& answer);
  void Finish(Result<Json> answer);
  Json ResultJson() const;

  const std::shared_ptr<WebSession> session_;
  const DrainOptions options_;
  Done done_;
  std::deque<DrainedPod> pods_;       // a deque, because evictions refer to them
  std::deque<DrainedPod*> to_evict_;  // eviction not requested yet
  size_t in_flight_ = 0;
  kube::Operation cordon_;
  std::deque<kube::Operation> lists_, evictions_;
};

}  // namespace tessera::console
