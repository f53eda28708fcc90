// SPDX-License-Identifier: Apache-2.0
// Removes Tessera from a cluster: the objects of the inventory, other objects with Tessera's label,
// the objects that the scheduler made, the record of a release of Helm, the labels, annotations and
// conditions that agents set on Nodes, and tessera-runtime in the engines' configurations. All pods
// continue, also pods with GPUs.
//
// The quotas (ConfigMap gpuquota) and annotations of pods stay. /opt/tessera stays on each node,
// because containerd needs it to stop the containers that still run. The kubelet itself sets the
// resources of the device plugins to 0.
//
// Threads: one; blocks. After a run that fails or is killed, the user runs the command again.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/install/install_lock.h"
#include "src/cli/install/inventory.h"
#include "src/components/settings.h"

namespace tessera::cli {

struct UninstallOptions {
  bool dry_run = false;  // only prints
  bool force = false;    // also while pods have GPUs, or a release of Helm has the objects
  Duration wait_timeout = std::chrono::seconds(120);  // of each wait
};

class Uninstaller {
 public:
  Uninstaller(ClusterClient& api, std::FILE* out, const UninstallOptions& options)
      : api_(api), out_(out), options_(options) {}

  Status Run();

 private:
  Status CheckNoGpuPods();
  Status ReadSpecOfTesseraResource();
  // The first step, because a running operator restores deleted objects.
  Status DeleteTesseraResource();
  // The objects, in the order in which they are deleted.
  Result<std::vector<ObjectId>> FindObjects();
  Result<std::vector<ObjectId>> FindByLabel();
  Result<std::vector<ObjectId>> FindHelmRecords();
  Status DeleteAll(const std::vector<ObjectId>& objects);
  // Pods of a node that does not answer never end. If `wait_status` is a timeout and --force is
  // set, prints it and returns OK. Otherwise returns `wait_status`.
  Status IgnoreTimeoutIfForced(const Status& wait_status);
  // Waits at most `wait_timeout`. Renews the lock meanwhile.
  Status WaitUntil(const std::function<Result<bool>()>& is_done);
  Status WaitUntilGone(const ObjectId& id);
  Status WaitUntilPodsAreGone(const std::string& label_selector);
  Status UndoEngineConfiguration();
  // Returns OK if the object does not exist.
  Status PatchIfExists(const kube::ObjectRef& object, kube::PatchKind kind, const Json& patch);
  Status RemoveNodeFields();
  Status DeleteNamespace();

  ClusterClient& api_;
  std::FILE* const out_;
  const UninstallOptions options_;
  InstallLock lock_{api_};
  bool has_inventory_ = false;
  InstallationRecord installation_;
  components::Settings settings_;
};

}  // namespace tessera::cli
