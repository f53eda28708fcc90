// SPDX-License-Identifier: Apache-2.0
// The modes that a node may have: whole GPUs only, or shares as well. A mode belongs to a pool of
// the installation (docs/tasks/install.md): each pool has a DaemonSet of agents with flags of its
// own, and a node belongs to a pool by its labels. So a mode is chosen by changing labels of the
// node. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/strings.h"
#include "src/formats/json.h"
#include "src/kube/objects.h"

namespace tessera::console {

// A pool of agents, as described by its DaemonSet.
struct AgentPool {
  std::string name;  // "": the agents of nodes that are in no pool
  std::string daemon_set;
  bool offers_shares = false;         // whether shares are offered besides whole GPUs
  bool by_helm = false;               // installed by Helm, whose chart has no pools
  kube::NodeConstraints constraints;  // of its pods

  // Whether the pool's agents run on a node with these labels. Taints are ignored.
  bool Covers(const StringMap& node_labels) const;
};
// nullopt for an object that is no DaemonSet of agents.
std::optional<AgentPool> AgentPoolOf(const Json& daemon_set);

// Changes of a node's labels after which the pool covers the node; nullopt removes a label.
struct LabelChange {
  StringChanges labels;
  std::string problem;  // why the change is not possible, or ""
};
// Labels that Kubernetes or the agent writes are never changed.
LabelChange ChangeFor(const AgentPool& wanted, const std::vector<AgentPool>& pools,
                      const StringMap& node_labels);

// metadata.labels of a merge patch: {"added":"value","removed":null}.
Json JsonOfChange(const LabelChange& change);
// {"choices":[{"pool":…,"agents":…,"mode":"shared","current":true,"labels":{…},"problem":…}],
//  "byHelm":true}   if Helm has installed the agents
Json JsonOfModes(const std::vector<AgentPool>& pools, const StringMap& node_labels);

}  // namespace tessera::console
