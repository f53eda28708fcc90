// SPDX-License-Identifier: Apache-2.0
// Changes a few members of a JSON text that a person or a tool wrote and leaves every other byte
// alone: order, indentation, the text of numbers, duplicate keys, a byte order mark. What is added
// is indented like its neighbours. JSON has no comments, and neither have the programs that read
// these files: a comment is an error that names its line.
//
// A patch is proved before it is handed out, as in toml_patcher.h. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/text_edit.h"

namespace tessera {

// A text of nothing but white space counts as `{}`. Only kSet and kRemove. INVALID_ARGUMENT: the
// text does not parse, is no object, or an edit goes through something that is no object; INTERNAL:
// the proof failed.
Result<std::string> PatchJson(std::string_view text, const std::vector<TextEdit>& edits);

}  // namespace tessera
