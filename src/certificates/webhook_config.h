// SPDX-License-Identifier: Apache-2.0
// The part of a webhook configuration that is ours: whose certificates the API server accepts. What
// is called when, and by which address, is the administrator's (deploy/manifests).
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "src/formats/json.h"

namespace tessera::certificates {

// A JSON patch that sets the bundle (PEM) of every webhook of the configuration; nullopt if all
// have it. The patch fails if the webhooks have been reordered since `configuration` was read.
std::optional<Json> BundlePatch(const Json& configuration, const std::string& bundle);

}  // namespace tessera::certificates
