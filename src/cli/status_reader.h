// SPDX-License-Identifier: Apache-2.0
// Reads the objects that `tessera status` judges. Threads: the client's. Included only in src/cli.
#pragma once

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/status.h"

namespace tessera::cli {

// Errors: those of listing pods and nodes; an object that cannot be read is an error in its member
// alone.
Result<InstallationObjects> ReadInstallation(ClusterClient& api);

}  // namespace tessera::cli
