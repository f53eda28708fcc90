// SPDX-License-Identifier: Apache-2.0
// Reads the objects that `tessera status` judges. Threads: the client's thread. Included only
// in src/cli.
#pragma once

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/status.h"

namespace tessera::cli {

// Reads only nodes with the labels `node_selector`. Fails if pods or nodes cannot be listed. If
// another object cannot be read, its member has the error.
Result<InstallationObjects> ReadInstallation(ClusterClient& api,
                                             const std::string& node_selector = "");

}  // namespace tessera::cli
