// SPDX-License-Identifier: Apache-2.0
// Tells the cluster about this node's GPUs: labels nvidia.com/gpu.{present,count,product,memory} as
// GPU feature discovery writes them, annotation tessera.dev/devices, condition GPUReady, the number
// of GPUs as aliyun.com/gpu-count, and Events when one of them changes. Writes on change only, its
// own or one that Recheck finds, and tries again with growing pauses; the API server being away
// has no other effect. An Event that cannot be written is lost.
//
// Also gaia.tencent.com/gpu-model, by which gpu-admission and whoever selects nodes as gpu-manager
// had it know the model: as gpu-manager wrote it, or the chip's name where that was nothing. On a
// node with several models it is not there, because quotas would count all GPUs as one of them; and
// where somebody else has written it, that stays.
//
// On a node with several models the labels are those of the largest group (then the first name).
// While the driver has a problem, or the inventory is not known, labels stay as they are as long as
// the PCI bus shows a GPU: it is there, the DaemonSet that brings its driver may select by them,
// and restarts must not move pods. Without a driver and without a GPU they go. A node that never
// had one gets no condition either: nothing is wrong with it.
//
// Threads: lives on `runner`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/node/node_condition.h"
#include "src/agent/node/node_events.h"
#include "src/agent/node/node_metrics.h"
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
  // Strategic merge: conditions of other types stay.
  virtual void PatchStatus(const Json& patch, Done done) = 0;
  virtual void CreateEvent(const Json& event, Done done) = 0;
};

// Nothing stands for "no such label".
using NodeFacts = std::map<std::string, std::optional<std::string>, std::less<>>;

struct NodeState {
  NodeFacts labels;
  NodeFacts annotations;
  NodeCondition condition;
};

// What the node should say. `has_hardware`: it has a GPU, whatever the driver says. Pure.
NodeState StateOf(const device::NodeInventory& inventory, bool has_hardware);
// The merge patch that brings the metadata of `node` to `state`; nothing where it is there already.
std::optional<Json> PatchFor(const Json& node, const NodeState& state);

class NodePublisher {
 public:
  static constexpr Duration kFirstPause = std::chrono::seconds(1);
  static constexpr Duration kLongestPause = std::chrono::minutes(2);
  // A GPU that comes and goes for hours shall not fill the API server: so many Events at once, then
  // one in each interval.
  static constexpr int kMaxEventBurst = 32;
  static constexpr Duration kEventInterval = std::chrono::seconds(30);

  // Whether the node has GPU hardware, whatever the driver says. May look at sysfs.
  using HasHardware = std::function<bool()>;

  // `api` outlives it.
  NodePublisher(TaskRunner* runner, NodeApi* api, NodeMetrics* metrics, HasHardware has_hardware);
  ~NodePublisher();
  NodePublisher(const NodePublisher&) = delete;
  NodePublisher& operator=(const NodePublisher&) = delete;

  void Publish(const device::NodeInventory& inventory);
  // Called with the Node each time that it was read, which is before it is written.
  void OnNode(std::function<void(const Json& node)> on_node) { on_node_ = std::move(on_node); }
  // The kubelet has registered the node anew, and may have written something else in our place.
  void Recheck();

 private:
  void Work();
  void PlanFor(const Json& node);
  void WriteMetadata();
  void WriteStatus();
  void WriteEvents();
  void Finish();
  void TryLater(const Status& status);
  // Goes on with `next` where the call went well, tries all again later where not.
  NodeApi::Done Then(std::function<void(const Json&)> next);
  // Counts the answer before `done` has it.
  NodeApi::Done Counted(NodeApi::Done done);
  bool MayWriteEvent();

  // What one look at the node showed to be missing.
  struct Plan {
    std::string text;  // of the state that it reaches
    std::optional<Json> metadata;
    std::optional<Json> status;  // condition, number of GPUs
    std::vector<Json> events;
  };

  TaskRunner* const runner_;
  NodeApi* const api_;
  NodeMetrics* const metrics_;
  const HasHardware has_hardware_;
  std::function<void(const Json& node)> on_node_;
  std::optional<device::NodeInventory> wanted_;
  NodeState state_;      // that wanted_ asks for
  std::string written_;  // the state that the server is known to have, as text
  Plan plan_;
  std::vector<Json> events_;  // of changes that are written
  WallTime event_time_{};     // of the last one; no two are the same
  int event_tokens_ = kMaxEventBurst;
  MonotonicTime event_tokens_at_{};
  bool busy_ = false;
  bool changed_ = false;  // while busy
  bool stale_ = false;    // what is being found out must be found out again
  Duration pause_ = kFirstPause;
  const std::shared_ptr<NodePublisher*> self_;
};

}  // namespace tessera::agent
