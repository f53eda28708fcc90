// SPDX-License-Identifier: Apache-2.0
// The part of a webhook configuration that is ours: whose certificates the API server accepts. What
// is called when, and by which address, is the administrator's (deploy/manifests).
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "src/formats/json.h"

namespace tessera::certificates {

// A JSON patch that gives every webhook of the configuration this bundle (PEM); nothing where all
// have it. The patch fails rather than touch another webhook than the one that was looked at.
std::optional<Json> BundlePatch(const Json& configuration, const std::string& bundle);

}  // namespace tessera::certificates
