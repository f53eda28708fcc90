// SPDX-License-Identifier: Apache-2.0
// Tells the cluster about this node's GPUs: labels nvidia.com/gpu.{present,count,product,memory} as
// GPU feature discovery writes them, and annotation tessera.dev/devices. Writes on change only, and
// tries again with growing pauses; the API server being away has no other effect.
//
// On a node with several models the labels are those of the largest group (then the first name).
// While the driver has a problem, or the inventory is not known, labels stay as they are: a
// DaemonSet may select by them, and restarts must not move pods. Threads: lives on `runner`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/agent/metrics.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/device/gpu.h"
#include "src/formats/json.h"

namespace tessera::agent {

// The Node object, as the API server has it.
class NodeApi {
 public:
  using Done = std::function<void(Result<Json>)>;

  virtual ~NodeApi() = default;
  // `done` runs on the runner, never from within; not after the NodeApi is gone.
  virtual void Get(Done done) = 0;
  virtual void MergePatch(const Json& patch, Done done) = 0;
};

// Nothing stands for "no such label".
using NodeFacts = std::map<std::string, std::optional<std::string>, std::less<>>;

struct NodeState {
  NodeFacts labels;
  NodeFacts annotations;
};

// What the node should say. Pure.
NodeState StateOf(const device::NodeInventory& inventory);
// The merge patch that brings `node` to `state`; nothing where it is there already.
std::optional<Json> PatchFor(const Json& node, const NodeState& state);
// "NVIDIA A100-SXM4-40GB" -> "NVIDIA-A100-SXM4-40GB".
std::string LabelValue(std::string_view model);

class NodePublisher {
 public:
  static constexpr Duration kFirstPause = std::chrono::seconds(1);
  static constexpr Duration kLongestPause = std::chrono::minutes(2);

  // `api` outlives it.
  NodePublisher(TaskRunner* runner, NodeApi* api, AgentMetrics* metrics);
  ~NodePublisher();
  NodePublisher(const NodePublisher&) = delete;
  NodePublisher& operator=(const NodePublisher&) = delete;

  void Publish(const device::NodeInventory& inventory);

 private:
  void Work();
  void OnNode(const Result<Json>& node);
  void OnPatched(const Status& status);
  void TryLater(const Status& status);

  TaskRunner* const runner_;
  NodeApi* const api_;
  AgentMetrics* const metrics_;
  std::optional<NodeState> wanted_;
  std::string written_;  // the wanted state that the server is known to have, as text
  bool busy_ = false;
  bool changed_ = false;  // while busy
  Duration pause_ = kFirstPause;
  const std::shared_ptr<NodePublisher*> self_;
};

}  // namespace tessera::agent
