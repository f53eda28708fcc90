// SPDX-License-Identifier: Apache-2.0
// Removes from objects the fields that a sysdump must not contain. Pure. Included only in src/cli.
//
// Pods of users and nodes keep only the fields that redact.cc lists. Tessera's own objects lose
// managed fields, the last applied configuration, and the values of variables and arguments whose
// names suggest a secret.
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
