// SPDX-License-Identifier: Apache-2.0
// The fields of a node and of an agent's pod that the operator keeps: a few strings, so that
// thousands of nodes and pods take a few MiB. Also the summary of the health of all nodes, with the
// reasons why nodes do not work.
//
// Threads: states are values, and each thread may use its own copy; the functions are pure. Errors:
// INVALID_ARGUMENT names the object.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"
#include "src/kube/raw_object.h"
#include "src/operator/driver/fleet.h"

namespace tessera::operators {

// A node, for kube::Informer.
struct GpuNodeState {
  kube::ObjectMeta meta;  // labels and annotations as in KeptFieldsOfNodes
  bool ready = false;
  // Condition GPUReady, which the agent writes.
  bool gpu_ready = false;
  std::string gpu_reason;   // "": the node has no such condition
  std::string gpu_message;  // "" while the condition is True

  static void Prepare(kube::ListQuery* query);
  bool has_gpus() const;
  bool managed_by_nvidia() const;
  bool operator==(const GpuNodeState&) const = default;
};
Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, GpuNodeState* out);
kube::KeptFields KeptFieldsOfNodes();

// A pod of the agents' DaemonSets, for kube::Informer.
struct AgentPodState {
  kube::ObjectMeta meta;
  std::string node_name;
  bool ready = false;
  std::string reason;   // why it is not ready: ImagePullBackOff, CrashLoopBackOff, Unschedulable…
  std::string message;  // the kubelet's or scheduler's message about the reason

  static void Prepare(kube::ListQuery* query);
  bool operator==(const AgentPodState&) const = default;
};
Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, AgentPodState* out);

using driver::NodeProblem;

struct NodeHealth {
  size_t total = 0;
  size_t with_gpus = 0;
  size_t ready = 0;              // nodes with GPUs that pods can use
  size_t managed_by_nvidia = 0;  // nodes that NVIDIA's operator manages
  size_t problem_count = 0;
  std::vector<NodeProblem> problems;  // the first kMaxProblems by name
  bool operator==(const NodeHealth&) const = default;
};
inline constexpr size_t kMaxProblems = 20;

// Collects pods and nodes, and summarizes their health.
class NodeHealthCollector {
 public:
  // `excludes_nvidia_nodes`: agents are kept off nodes that NVIDIA's operator manages.
  explicit NodeHealthCollector(bool excludes_nvidia_nodes)
      : excludes_nvidia_nodes_(excludes_nvidia_nodes) {}
  // Add all pods before the nodes. The arguments must outlive the collector.
  void AddPod(const AgentPodState& pod);
  void AddNode(const GpuNodeState& node);
  NodeHealth Take();

 private:
  void AddProblem(const std::string& node, std::string reason, const std::string& message);

  const bool excludes_nvidia_nodes_;
  std::unordered_map<std::string_view, const AgentPodState*> pods_;  // by node
  NodeHealth summary_;
};

// The remedy for this reason; "" if the reason is unknown.
std::string_view RemedyFor(std::string_view reason);

}  // namespace tessera::operators
