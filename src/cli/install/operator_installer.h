// SPDX-License-Identifier: Apache-2.0
// Installs Tessera through its operator: the operator, the definition of its resource, and the
// resource, from which the operator makes all other objects. Users change settings afterwards by
// `kubectl edit tessera tessera`, and remove all objects by `tessera uninstall`.
//
// Threads: one; blocks. After a run that fails or is killed, the user runs the command again.
// Errors: with the remedy; FAILED_PRECONDITION or ALREADY_EXISTS if Tessera is installed.
#pragma once

#include <cstdio>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/install/installer.h"
#include "src/formats/json.h"

namespace tessera::cli {

// The objects in the order in which they are applied; the resource comes last.
Result<std::vector<Json>> OperatorObjects(const Json& spec);

class OperatorInstaller {
 public:
  OperatorInstaller(ClusterClient& api, std::FILE* out, InstallWaits waits)
      : api_(api), out_(out), waits_(waits) {}

  // `force`: replaces the settings of an existing installation by the operator. Fails, even with
  // `force`, if Tessera is installed without the operator.
  Status Install(const Json& spec, bool force);
  // Applies the operator of this version, and merges `changes` over the settings of its resource,
  // or replaces them if `reset`. Prints the changes of objects before it applies them. `dry_run`:
  // only prints. REQUIRES: `resource` is that of the cluster.
  Status Upgrade(const Json& resource, const Json& changes, bool reset, bool dry_run);

 private:
  Status CheckNothingInstalled(bool force);
  Status Apply(const std::vector<Json>& objects, bool replaces_spec, InstallLock* lock);
  Status ReplaceSpec(const Json& spec);
  Status ApplyResource(const Json& resource);
  Status WaitUntilReady();

  ClusterClient& api_;
  std::FILE* const out_;
  const InstallWaits waits_;
};

}  // namespace tessera::cli
