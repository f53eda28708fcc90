// SPDX-License-Identifier: Apache-2.0
// Removes tessera-runtime from the container engines' configurations: runs DaemonSets on the nodes
// that had agents, waits until all of their pods are ready, and deletes the DaemonSets. Runs after
// the last agent has ended, because an agent's pod would configure the engine again.
//
// Threads: the client's runner. What ClusterAccess refers to, and `types`, must outlive the
// cleanup.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/operator/cluster_access.h"
#include "src/operator/object_set.h"

namespace tessera::operators {

class EngineCleanup : private ObjectSet::Delegate {
 public:
  // DEADLINE_EXCEEDED says which DaemonSet is not ready; other errors come from the deletion.
  using OnDone = std::function<void(const Status& status)>;

  // Starts at once. Calls `on_done` once, posted to the runner, after at most `timeout` and some
  // requests. `daemonsets`: from components::RenderCleanup.
  EngineCleanup(ClusterAccess access, kube::TypeCatalog& types, std::vector<Json> daemonsets,
                Duration timeout, OnDone on_done);
  ~EngineCleanup() override;
  EngineCleanup(const EngineCleanup&) = delete;
  EngineCleanup& operator=(const EngineCleanup&) = delete;

 private:
  void OnObjectsChanged() override;
  void OnRepair(const std::string&, const std::string&) override {}
  void End(const Status& status);
  void DeleteNext();

  const ClusterAccess access_;
  const OnDone on_done_;
  std::vector<kube::ObjectRef> to_delete_;
  bool ended_ = false;
  Status result_;
  kube::Operation deletion_;
  ObjectSet set_;
  WeakPtrFactory<EngineCleanup> weak_{this};
};

}  // namespace tessera::operators
