// SPDX-License-Identifier: Apache-2.0
// Removes from objects what a report must not contain in a sysdump. Pure. Included only in src/cli.
//
// Closed by default: of a user's pod and of a node only listed fields are kept. Of Tessera's own
// objects all is kept but managed fields, the last applied configuration, and values of variables
// and arguments whose name sounds like a secret.
#pragma once

#include <string>
#include <string_view>

#include "src/formats/json.h"

namespace tessera::cli {

// A pod of a user: names, nodes, images, resources, state, and annotations of GPU systems. No
// environment, commands, arguments or volumes.
Json ReducedPod(const Json& pod);
// A node: labels, annotations and resources of GPU systems, conditions, versions.
Json ReducedNode(const Json& node);
// An object of Tessera's own.
Json WithoutSecrets(const Json& object);
// A log without bearer tokens, JSON web tokens and private keys.
std::string WithoutTokens(std::string_view log);

}  // namespace tessera::cli
