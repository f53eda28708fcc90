// SPDX-License-Identifier: Apache-2.0
// Removes the device rules from the resources of `update`. Engines send their own device rules,
// without the rules that `create` added. runc ignores device rules in an update; crun would apply
// the engine's, and the container would lose its GPU. Threads: one.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::runtime {

// The document without its device rules. INVALID_ARGUMENT: not a JSON object.
Result<std::string> WithoutDeviceRules(std::string_view text);

// Has the low-level runtime read the document `resources`, a file's name or "-", without its device
// rules: from standard input, as argv says afterwards. `resources` points into argv. What is not
// understood reaches the low-level runtime as it is.
Status LeaveDeviceRulesOut(const char* resources, int argc, char** argv);

}  // namespace tessera::runtime
