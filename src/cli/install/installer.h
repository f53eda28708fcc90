// SPDX-License-Identifier: Apache-2.0
// Applies Tessera's objects to a cluster: first to install it, later to change its settings or its
// version. Nodes that NVIDIA's operator manages get no agent. Pods with GPUs keep running while
// agents and schedulers are replaced.
//
// After a run that fails or is killed, the user runs the command again: the inventory is written
// before the objects, so that no object is forgotten.
//
// Threads: one; blocks. Errors: with the remedy; FAILED_PRECONDITION if another tool installed
// Tessera.
#pragma once

#include <cstdio>
#include <optional>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/install/install_lock.h"
#include "src/cli/install/inventory.h"
#include "src/cli/installation_audit.h"
#include "src/formats/json.h"

namespace tessera::cli {

// The objects for these settings, with the namespace first.
Result<std::vector<Json>> ObjectsToInstall(const Json& spec);

// Checks by a dry run, which changes nothing, whether the API server would accept the objects.
// INVALID_ARGUMENT names each object that the server rejects, with the field. After any other error
// it is unknown whether the server would accept them.
Status CheckByServer(ClusterClient& api, const std::vector<Json>& objects);

// FAILED_PRECONDITION if the cluster's Kubernetes is too old for Tessera.
Status CheckServerVersion(ClusterClient& api);
// The installation that `tessera install` made; nullopt if there is none.
Result<std::optional<InstallationRecord>> FindInstallation(ClusterClient& api);
// The resource with the settings of an installation by the operator.
ObjectId TesseraResourceId();
// FAILED_PRECONDITION if the resource of the operator exists.
Status CheckNoOperator(ClusterClient& api);

// Prints what an upgrade changes: the version, the settings and each object, as the API server
// would have it. INVALID_ARGUMENT: the server rejects an object.
Status PrintChanges(ClusterClient& api, std::FILE* out, const InstallationRecord& before,
                    const Json& spec, const std::vector<Json>& objects);

// The waits of an installation.
struct InstallWaits {
  Duration timeout;               // of each wait
  bool wait_until_ready = false;  // also waits until all pods are ready
};

// Waits while the namespace of an earlier installation is being deleted, because the API server
// creates no objects in it. DEADLINE_EXCEEDED says what delays the deletion.
Status WaitForNamespaceDeletion(ClusterClient& api, InstallLock& lock, std::FILE* out,
                                Duration timeout);

class Installer {
 public:
  Installer(ClusterClient& api, std::FILE* out, InstallWaits waits)
      : api_(api), out_(out), waits_(waits) {}

  // Returns ALREADY_EXISTS or FAILED_PRECONDITION if Install without `force` would return it.
  Status CheckNothingInstalled();
  // `force`: replaces an existing installation.
  Status Install(const Json& spec, bool force);
  // Merges `changes` over the stored settings, or replaces them if `reset`. Prints the changes of
  // objects before it applies them. `dry_run`: only prints.
  Status Upgrade(const Json& changes, bool reset, bool dry_run);

 private:
  // Deletes the record of a release of Helm, whose objects this installation takes over.
  Status DeleteHelmRecords();
  Status SkipObjectsOfOthers(std::vector<Json>* objects);
  // Applies the objects, deletes those of `before` that are no longer wanted, and waits.
  Status Apply(const InstallationRecord& before, InstallationRecord next,
               const std::vector<Json>& objects);
  Status Prune(const std::vector<ObjectId>& before, const std::vector<ObjectId>& wanted);
  Status WaitUntilReady(const std::vector<Json>& objects);

  ClusterClient& api_;
  std::FILE* const out_;
  const InstallWaits waits_;
  // The record of this release is deleted after the objects are applied.
  std::optional<HelmRelease> replaced_release_;
  InstallLock lock_{api_};
};

}  // namespace tessera::cli
