// SPDX-License-Identifier: Apache-2.0
// Reports to the Node object (node_publisher.h) the GPUs that the agent offers, what is wrong with
// the node, and why containers would start without their GPUs. Overwrites changes by other writers.
//
// Threads: lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/node/node_publisher.h"

namespace tessera::agent {

class NodeReporter {
 public:
  // Time after a plugin's registration in which the kubelet registers its Node. When the kubelet
  // registers its Node, it sets the resources that it does not know to 0. So the Node is read again
  // after this time.
  static constexpr Duration kKubeletRegistrationTime = std::chrono::seconds(20);
  // How often the Node is read to correct changes by other writers. An idle agent sends no other
  // request.
  static constexpr Duration kCheckInterval = std::chrono::minutes(5);
  struct Sources {
    std::function<std::optional<device::NodeInventory>()> inventory;  // nullopt: not known yet
    std::function<NodeFindings()> findings;
    NodePublisher::ReadHardware hardware;
    std::function<void(const Json& node)> on_node;  // for each read of the Node
  };

  // `metrics` must outlive the object.
  NodeReporter(TaskRunner* runner, NodeMetrics* metrics, Sources sources);
  NodeReporter(const NodeReporter&) = delete;
  NodeReporter& operator=(const NodeReporter&) = delete;

  // Starts publishing. `startup_taints`: keys of taints that the smoke test removes.
  void Start(std::unique_ptr<NodeApi> api, TaintKeys startup_taints);
  // Call when a source has changed.
  void Publish();
  // Why the engine would start containers without their GPUs; "": no problem. Call Publish
  // afterwards.
  void SetEngineProblem(const std::string& problem) { engine_problem_ = problem; }
  // Publishes the containers that run without their GPUs, as "namespace/pod/container".
  void SetContainersWithoutGpus(const std::vector<std::string>& containers);
  // Call when the kubelet has accepted the device plugins.
  void OnKubeletRegistered();

 private:
  void ScheduleRecheck();

  TaskRunner* const runner_;
  NodeMetrics* const metrics_;
  const Sources sources_;
  std::string engine_problem_;
  std::string without_gpus_problem_;
  std::unique_ptr<NodeApi> api_;
  std::unique_ptr<NodePublisher> publisher_;  // null until Start
  WeakPtrFactory<NodeReporter> weak_{this};
};

}  // namespace tessera::agent
