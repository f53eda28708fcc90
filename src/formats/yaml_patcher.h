// SPDX-License-Identifier: Apache-2.0
// Changes a few values of an existing YAML text and keeps the rest: comments, order, indentation,
// quotes. Every patch is verified: the text is parsed, and the difference must be exactly the
// edits. If the layout cannot be kept, for example because a list replaces a text, the result is
// the whole document as WriteYaml writes it, without its comments and its layout. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/text_edit.h"

namespace tessera {

// Supports only kSet and kRemove. In a path the key of a list is the position of an item, such as
// "0". INVALID_ARGUMENT: the text does not parse, is not a mapping, or the path of an edit contains
// a value that is neither a mapping nor a list with this item.
Result<std::string> PatchYaml(std::string_view text, const std::vector<TextEdit>& edits);

}  // namespace tessera
