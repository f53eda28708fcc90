// SPDX-License-Identifier: Apache-2.0
// Changes a few members of an existing JSON text and keeps every other byte: order, indentation,
// the text of numbers, duplicate keys, a byte order mark. New members are indented like their
// neighbors. JSON has no comments, and the programs that read these files accept none, so a comment
// is an error that names its line.
//
// Every patch is verified before it is returned: the text is parsed before and after, and the
// difference must be exactly the edits. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/text_edit.h"

namespace tessera {

// Empty or blank text counts as `{}`. Supports only kSet and kRemove. INVALID_ARGUMENT: the text
// does not parse, is not an object, or the path of an edit contains a value that is not an object;
// INTERNAL: the verification failed.
Result<std::string> PatchJson(std::string_view text, const std::vector<TextEdit>& edits);

}  // namespace tessera
