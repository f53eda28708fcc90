// SPDX-License-Identifier: Apache-2.0
// Reads the input of decisions about drivers: nodes with GPUs, driver pods, the revisions that
// earlier operators have stored, and on request all pods of single nodes.
//
// Watches nothing before Follow. Threads: the client's runner. Client, metrics and delegate must
// outlive the reader. Idle cost: a watch of nodes with GPUs, and one of driver pods.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/strings.h"
#include "src/base/weak_ptr.h"
#include "src/kube/client.h"
#include "src/operator/change_handler.h"
#include "src/operator/driver_states.h"
#include "src/operator/metrics.h"

namespace tessera::operators {

// The name of the ConfigMap with the revisions.
inline constexpr std::string_view kRevisionsName = "tessera-driver-revisions";

class FleetReader {
 public:
  using LabelKeys = std::set<std::string, std::less<>>;
  struct Options {
    std::string ns;  // of the driver's pods
    Duration retry = std::chrono::seconds(5);
  };
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // Nodes, driver pods or revisions have changed, or their watch has failed.
    virtual void OnFleetChanged() = 0;
    // Errors() has changed.
    virtual void OnErrorsChanged() = 0;
  };
  struct PodsToRead {
    std::string node;
    StringMap wait_for;  // labels of the pods that an upgrade of the node waits for
  };

  FleetReader(kube::Client& client, OperatorMetrics& metrics, Options options, Delegate& delegate);
  ~FleetReader();
  FleetReader(const FleetReader&) = delete;
  FleetReader& operator=(const FleetReader&) = delete;

  // Follows nodes and driver pods. `selectors`: the labels by which pools select nodes.
  void Follow(LabelKeys selectors);
  bool following() const { return node_handler_.has_value(); }
  // Checks whether a node still has a driver of earlier settings. A check that fails is retried,
  // and its error is in Errors(). Calls `on_known` once, but not after Follow was called.
  void FindLeftovers(std::function<void(bool found)> on_known);

  // Whether nodes, driver pods and revisions are known.
  bool known() const;
  // REQUIRES: known().
  driver::FleetView View(const std::vector<driver::FleetPool>& pools) const;
  // Stores the `revisions` of a view. View passes them to driver::ViewFleet as `known`.
  void KeepRevisions(const driver::Revisions& revisions) { revisions_ = revisions; }
  const DriverNodeState* FindNode(const std::string& name) const;
  // The resourceVersion of the node; "" for an unknown node.
  std::string ResourceVersionOf(const std::string& node) const;
  const DriverPodState* FindDriverPod(const std::string& key) const;

  // Forgets the pods that were read before, and reads the pods of these nodes. `on_done` gets the
  // first error. PodsOf returns null for a node whose pods could not be read.
  void ReadPods(std::deque<PodsToRead> nodes, std::function<void(const Status& error)> on_done);
  // Null if the pods of the node have not been read.
  const std::vector<driver::UpgradePod>* PodsOf(const std::string& node) const;

  // The failed reads, as pairs of what failed ("watch nodes") and the error.
  std::vector<std::pair<std::string_view, Status>> Errors() const;

 private:
  void FollowNodes(LabelKeys selectors);
  void ReadLeftovers();
  void OnLeftovers(const Result<kube::ListPage>& page);
  void ReadRevisions();
  void OnRevisions(const Result<Json>& map);
  void ReadNextPods();
  void ReadPageOfPods(const PodsToRead& node, const std::string& continue_token);
  void OnPageOfPods(const PodsToRead& node, const Result<kube::ListPage>& page);

  kube::Client& client_;
  OperatorMetrics& metrics_;
  const Options options_;
  Delegate& delegate_;
  LabelKeys selectors_;
  std::optional<ChangeHandler<DriverNodeState>> node_handler_;
  std::optional<ChangeHandler<DriverPodState>> pod_handler_;
  std::unique_ptr<kube::Informer<DriverNodeState>> nodes_;
  std::unique_ptr<kube::Informer<DriverPodState>> pods_;
  bool revisions_known_ = false;
  driver::Revisions revisions_;
  std::map<std::string, std::vector<driver::UpgradePod>> node_pods_;
  std::deque<PodsToRead> to_read_;
  std::function<void(const Status&)> on_pods_read_;
  Status pods_read_error_;                              // the first error of the present ReadPods
  std::function<void(bool found)> on_leftovers_known_;  // null: no check is under way
  Status leftovers_error_, revisions_error_, pods_error_;
  kube::Operation leftovers_read_, revisions_read_, pods_read_;
  WeakPtrFactory<FleetReader> weak_{this};
};

}  // namespace tessera::operators
