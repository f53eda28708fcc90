// SPDX-License-Identifier: Apache-2.0
// Publishes this node's GPUs: the labels of GPU feature discovery (feature_labels.h), annotation
// tessera.dev/devices, condition GPUReady, the number of GPUs as aliyun.com/gpu-count, and Events
// when a GPU changes. Writes after a change of the inventory or of the Node (found by Recheck), and
// retries with growing pauses. An unreachable API server has no other effect. Drops an Event that
// cannot be written.
//
// Also publishes the label gaia.tencent.com/gpu-model for gpu-admission and for node selectors of
// gpu-manager. Its value is the word that gpu-manager would write, or the chip's name for a model
// for which gpu-manager has no word. A node with several models has no such label, because quotas
// would count all GPUs as one model. A label that another writer owns stays.
//
// A node whose PCI bus shows a GPU has nvidia.com/gpu.present=true, also before it has a driver:
// the DaemonSet of its driver may select by this label. While the driver has a problem, or the
// inventory is unknown, the other labels stay as they are, because restarts of the driver must not
// move pods. Without a driver and without a GPU the labels are removed. A node that never had a GPU
// gets no condition either.
//
// After the smoke test has passed, startup taints are removed, also those that Recheck finds.
//
// Threads: lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/agent/node/feature_labels.h"
#include "src/agent/node/node_condition.h"
#include "src/agent/node/node_events.h"
#include "src/agent/node/node_hardware.h"
#include "src/agent/node/node_metrics.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/device/gpu.h"
#include "src/formats/json.h"
#include "src/net/io_thread.h"

namespace tessera::agent {

// The Node object, as the API server has it.
class NodeApi {
 public:
  using Done = std::function<void(Result<Json>)>;

  virtual ~NodeApi() = default;
  // Calls `done` on the runner, never from within the call, and not after the NodeApi is destroyed.
  virtual void Get(Done done) = 0;
  virtual void MergePatch(const Json& patch, Done done) = 0;
  // Strategic merge: conditions of other types stay.
  virtual void PatchStatus(const Json& patch, Done done) = 0;
  // A JSON patch; ABORTED or INVALID_ARGUMENT if one of its tests fails.
  virtual void JsonPatch(const Json& patch, Done done) = 0;
  virtual void CreateEvent(const Json& event, Done done) = 0;
};

// The NodeApi of the API server. Errors: see kube::FindConfig.
Result<std::unique_ptr<NodeApi>> ConnectNodeApi(net::IoThread* io, TaskRunner* runner,
                                                const std::string& kubeconfig,
                                                const std::string& node_name);

struct PublishedNode {
  StringChanges labels;
  StringChanges annotations;
  NodeCondition condition;
  bool smoke_passed = false;  // the agent removes startup taints
};

// The state to publish. Pure.
PublishedNode StateOf(const device::NodeInventory& inventory, const NodeHardware& hardware,
                      const NodeFindings& findings = {});

class NodePublisher {
 public:
  static constexpr Duration kFirstPause = std::chrono::seconds(1);
  static constexpr Duration kLongestPause = std::chrono::minutes(2);
  // An unstable GPU must not flood the API server: kMaxEventBurst Events are recorded at once, then
  // one in each kEventInterval.
  static constexpr int kMaxEventBurst = 32;
  static constexpr Duration kEventInterval = std::chrono::seconds(30);

  using ReadHardware = std::function<NodeHardware()>;

  // `api` must outlive the object.
  NodePublisher(TaskRunner* runner, NodeApi* api, NodeMetrics* metrics, ReadHardware read_hardware);
  NodePublisher(const NodePublisher&) = delete;
  NodePublisher& operator=(const NodePublisher&) = delete;

  void Publish(const device::NodeInventory& inventory, const NodeFindings& findings = {});
  // The keys of startup taints; without them no taint is removed. Call before Publish.
  void SetStartupTaints(TaintKeys keys) { startup_taints_ = std::move(keys); }
  // Sets a callback for each read of the Node, before it is written.
  void SetOnNode(std::function<void(const Json& node)> on_node) { on_node_ = std::move(on_node); }
  // Reads the Node again, because the kubelet may have registered and so overwritten it.
  void Recheck();

 private:
  void UpdateNode();
  void PlanFor(const Json& node);
  void WriteMetadata();
  void WriteStatus();
  void RemoveTaints();
  void WriteEvents();
  void Finish();
  void ScheduleRetry(const Status& status);
  // Continues with `next` after success; retries all steps later after an error.
  NodeApi::Done Then(std::function<void(const Json&)> next);
  // Counts the result code, then calls `done`.
  NodeApi::Done Counted(NodeApi::Done done);
  bool TakeEventToken();

  // The patches that the Node needs, by its latest read.
  struct NodePatches {
    std::string text;         // the state that the patches reach, as text
    NodeCondition condition;  // of that state
    std::optional<Json> metadata;
    std::optional<Json> status;  // condition, number of GPUs
    std::optional<Json> taints;
    std::vector<Json> events;
  };

  TaskRunner* const runner_;
  NodeApi* const api_;
  NodeMetrics* const metrics_;
  const ReadHardware read_hardware_;
  std::function<void(const Json& node)> on_node_;
  std::optional<device::NodeInventory> inventory_;
  TaintKeys startup_taints_;
  PublishedNode state_;        // the state for inventory_
  std::string written_state_;  // the state that the server has, as text; "": unknown
  NodePatches patches_;
  std::vector<Json> events_;  // Events about changes that are written
  WallTime event_time_{};     // time of the last Event; each Event has another time
  int event_tokens_ = kMaxEventBurst;
  MonotonicTime event_tokens_at_{};
  bool busy_ = false;
  bool changed_ = false;  // inventory_ changed while busy
  bool stale_ = false;    // the running read must be repeated
  Duration pause_ = kFirstPause;
  WeakPtrFactory<NodePublisher> weak_{this};
};

}  // namespace tessera::agent
