// SPDX-License-Identifier: Apache-2.0
// Removes Tessera from a cluster: what the inventory lists and what else has its label, what the
// scheduler made, what the agents wrote on Nodes, and tessera-runtime in the engines'
// configurations. Pods go on, those with GPUs included.
//
// Stays: the quotas (ConfigMap gpuquota), annotations of pods, and on each node /opt/tessera,
// through which containerd stops running containers. The kubelet itself sets the resources of the
// device plugins to 0.
//
// Threads: one; blocks. A run that fails or is killed is repeated.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/install/inventory.h"
#include "src/components/settings.h"

namespace tessera::cli {

struct UninstallOptions {
  bool dry_run = false;  // only prints
  bool force = false;    // also while pods have GPUs, or a release of Helm has the objects
  Duration patience = std::chrono::seconds(120);
};

class Uninstaller {
 public:
  Uninstaller(ClusterClient& api, std::FILE* out, const UninstallOptions& options)
      : api_(api), out_(out), options_(options) {}

  Status Run();

 private:
  Status CheckNoPods();
  Status ReadSpecOfResource();
  // Before all else: while the operator runs, it restores what is deleted.
  Status DeleteResource();
  // The objects, in the order in which they are deleted.
  Result<std::vector<ObjectId>> Find();
  Result<std::vector<ObjectId>> FindByLabel();
  Status DeleteAll(const std::vector<ObjectId>& objects);
  // A node that does not answer keeps its pods. OK, after printing it, if --force goes on without.
  Status UnlessForced(const Status& waited);
  Status WaitUntilGone(const ObjectId& id);
  Status WaitForNoPods(const std::string& label_selector);
  Status CleanNodes();
  Status CleanNodeObjects();
  Status DeleteNamespace();

  ClusterClient& api_;
  std::FILE* const out_;
  const UninstallOptions options_;
  bool has_inventory_ = false;
  Installation installation_;
  components::Settings settings_;
};

}  // namespace tessera::cli
