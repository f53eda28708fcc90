// SPDX-License-Identifier: Apache-2.0
// Describes the differences between two versions of an object for users.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "src/formats/json.h"

namespace tessera::cli {

// One line for each value that differs: "spec.replicas: 2 -> 3". An item of a list is shown by its
// name, if it has one, else by its position. Leaves out fields that the server itself writes, the
// status, and the data of Secrets.
std::vector<std::string> ChangesOf(const Json& before, const Json& after);

}  // namespace tessera::cli
