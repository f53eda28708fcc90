// SPDX-License-Identifier: Apache-2.0
// Carries out the steps of driver upgrades: patches nodes, cordons them, evicts pods by the
// Eviction API, and restarts driver pods. Records each step as an Event on the Node.
//
// Each patch has the resourceVersion on which the step was decided, so a concurrent cordon by an
// administrator is not overwritten. Threads: the client's runner. The reader, the delegate and
// the objects that ClusterAccess refers to must outlive the executor.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "src/formats/json.h"
#include "src/kube/client.h"
#include "src/operator/cluster_access.h"
#include "src/operator/fleet_reader.h"

namespace tessera::operators {

class UpgradeExecutor {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // A node was written, or the API server rejected the write because the node has changed or is
    // gone.
    virtual void OnNodeWritten() = 0;
    // A pod was evicted or deleted, or the API server rejected the request.
    virtual void OnPodAnswer() = 0;
    // A write of a node has failed and set its error, or has succeeded after an error.
    virtual void OnWriteError() = 0;
  };

  UpgradeExecutor(ClusterAccess access, const FleetReader& reader, Delegate& delegate);
  UpgradeExecutor(const UpgradeExecutor&) = delete;
  UpgradeExecutor& operator=(const UpgradeExecutor&) = delete;

  // Patch and Execute have no effect while an earlier patch of the node is in flight, or until the
  // watch delivers the result of that patch.
  void Patch(const driver::NodePatch& patch);
  void Execute(const driver::UpgradeAction& action, const driver::UpgradeNode& node);

  // Call after the patches and actions of a pass over the fleet. Forgets the errors of nodes that
  // the pass did not write. Returns whether there was such an error.
  bool EndPass();

  // The error of a node that cannot be written; OK if all nodes can.
  Status error() const { return errors_.empty() ? Status::Ok() : errors_.begin()->second; }

 private:
  bool MayWrite(const std::string& node);
  void Send(const std::string& node, const Json& patch, std::function<void()> on_written);
  void OnNodeAnswer(const std::string& node, const std::string& old_version,
                    const Result<Json>& answer);
  void ExecuteOnPod(const driver::UpgradeAction& action);
  void OnPodAnswer(const driver::UpgradeAction& action, const Status& status);
  void Record(const driver::UpgradeAction& action, std::string_view reason = "");

  const ClusterAccess access_;
  const FleetReader& reader_;
  Delegate& delegate_;
  std::map<std::string, Status> errors_;  // of the last write, by node
  std::set<std::string> wanted_writes_;   // nodes to write in this pass
  // By node: the resourceVersion that the last patch replaced, until the watch delivers a newer
  // one; "": the patch is in flight.
  std::map<std::string, std::string> patched_versions_;
  std::set<std::string> pods_in_flight_;  // keys; their eviction or deletion is in flight
  std::map<std::string, kube::Operation> operations_;  // by node or pod
};

}  // namespace tessera::operators
