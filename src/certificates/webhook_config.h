// SPDX-License-Identifier: Apache-2.0
// Patches the part of a webhook configuration that is ours: the authorities that the API server
// trusts. Rules and addresses are the administrator's (deploy/chart). Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "src/formats/json.h"

namespace tessera::certificates {

// A JSON patch that sets the bundle (PEM) of every webhook of the configuration; nullopt if all
// have it. The patch fails if the webhooks have been reordered since `configuration` was read.
std::optional<Json> BundlePatch(const Json& configuration, const std::string& bundle);

}  // namespace tessera::certificates
