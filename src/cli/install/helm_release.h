// SPDX-License-Identifier: Apache-2.0
// The release of Helm that installed Tessera, and Helm's record of it. Threads: the client's
// thread.
#pragma once

#include <optional>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/installation_audit.h"

namespace tessera::cli {

// nullopt: Helm installed none of the objects that every installation has.
Result<std::optional<HelmRelease>> FindHelmRelease(ClusterClient& api);
// FAILED_PRECONDITION if Helm installed Tessera.
Status CheckNoHelmRelease(ClusterClient& api);
// The Secrets or ConfigMaps in which Helm keeps the release. If they stayed after the release's
// objects were deleted or taken over, a later "helm uninstall" would delete the objects of a newer
// installation.
Result<std::vector<ObjectId>> HelmRecordsOf(ClusterClient& api, const HelmRelease& release);

}  // namespace tessera::cli
