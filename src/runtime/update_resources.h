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

// Replaces standard input by the document `resources` (a file's name, or "-") without its device
// rules, and edits argv so that the low-level runtime reads it there. `resources` points into argv.
// An invalid document is passed on unchanged.
Status StripDeviceRules(const char* resources, int argc, char** argv);

}  // namespace tessera::runtime
