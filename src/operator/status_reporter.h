// SPDX-License-Identifier: Apache-2.0
// Watches the nodes and the agents' pods, and writes the status of the resource Tessera if it
// differs from the status in the API server. Included only in src/operator.
//
// Threads: the client's runner. The arguments must outlive the reporter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/kube/informer.h"
#include "src/operator/change_handler.h"
#include "src/operator/node_states.h"
#include "src/operator/reconciler.h"
#include "src/operator/resource_status.h"

namespace tessera::operators {

class StatusReporter {
 public:
  // `ns`: the namespace of the agents' pods.
  StatusReporter(const ClusterAccess& access, const std::string& ns, Reconciler& reconciler,
                 Reconciler::Delegate& delegate);
  StatusReporter(const StatusReporter&) = delete;
  StatusReporter& operator=(const StatusReporter&) = delete;

  bool synced() const { return nodes_.synced() && pods_.synced(); }
  // Whether pods of agents exist, or are not known yet.
  bool agents_run() const { return pods_.size() > 0 || !pods_.synced(); }
  // Whether the status can be written. Before that the nodes, the pods or the spec are unknown.
  bool ready() const;

  // If the resource no longer exists, `done` gets OK. REQUIRES: ready().
  void Write(const kube::JsonObject& resource, kube::KeyedQueue::Done done);
  // The status that was written or compared last; nullopt before that, and after Forget.
  const std::optional<StatusInput>& last_status() const { return last_status_; }
  void Forget() { last_status_.reset(); }

 private:
  const NodeHealth& Health();
  StatusInput Collect();
  std::string WatchError() const;
  void Send(const kube::JsonObject& resource, Json status, const StatusInput& input,
            std::vector<StatusChange> changes, kube::KeyedQueue::Done done);
  void OnPublished(const StatusInput& input, const std::vector<StatusChange>& changes);

  const ClusterAccess& access_;
  Reconciler& reconciler_;
  Reconciler::Delegate& delegate_;
  ChangeHandler<GpuNodeState> node_handler_;
  ChangeHandler<AgentPodState> pod_handler_;
  kube::Informer<GpuNodeState> nodes_;
  kube::Informer<AgentPodState> pods_;
  std::optional<NodeHealth> health_;  // nullopt: nodes or pods have changed since it was collected
  bool health_excludes_nvidia_nodes_ = false;
  std::optional<StatusInput> last_status_;
  std::string written_text_;          // text of the status that was written last
  std::string version_before_write_;  // the resource's resourceVersion before that write
  kube::Operation write_;
};

}  // namespace tessera::operators
