// SPDX-License-Identifier: Apache-2.0
// Changes a few keys of an existing JSON, TOML or YAML text and keeps the rest of it; not a
// formatter. Every patch is verified before it is returned: the text is parsed before and after,
// and the difference must be exactly the edits. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera {

using KeyPath = std::vector<std::string>;

enum class EditKind {
  kSet,         // sets the key; creates missing tables
  kRemove,      // removes the key with its content; OK if it is missing
  kAppend,      // adds this item to the array; creates a missing array
  kRemoveItem,  // removes this item from the array; OK if it is missing
};

struct TextEdit {
  EditKind kind = EditKind::kSet;
  KeyPath path;
  Json value;

  bool operator==(const TextEdit&) const = default;
};

// Applies the edit to a parsed document. INVALID_ARGUMENT: the path contains a value that is not an
// object, or the target of kAppend or kRemoveItem is not an array. REQUIRES: `document` is an
// object, and the path is not empty.
Status ApplyEdit(const TextEdit& edit, Json* document);

// Keeps every other byte: order, indentation, the text of numbers, duplicate keys, a byte order
// mark. New members are indented like their neighbors. JSON has no comments, and the programs that
// read these files accept none, so a comment is an error that names its line. Empty or blank text
// counts as `{}`. Supports only kSet and kRemove. INVALID_ARGUMENT: the text does not parse, is not
// an object, or the path of an edit contains a value that is not an object; INTERNAL: the
// verification failed.
Result<std::string> PatchJson(std::string_view text, const std::vector<TextEdit>& edits);

// Keeps every other byte: comments, order, spacing, line ends, a missing last newline. New keys are
// formatted like their neighbors. Values are strings, numbers, booleans and arrays of them; a table
// is set key by key. Edits that are already in effect leave the text unchanged. INVALID_ARGUMENT:
// the text does not parse, or the path of an edit contains a value that is not a table or array;
// INTERNAL: the verification failed.
Result<std::string> PatchToml(std::string_view text, const std::vector<TextEdit>& edits);

// Keeps comments, order, indentation and quotes. If the layout cannot be kept, for example because
// a list replaces a text, the result is the whole document as WriteYaml writes it, without its
// comments and its layout. Supports only kSet and kRemove. In a path the key of a list is the
// position of an item, such as "0". INVALID_ARGUMENT: the text does not parse, is not a mapping, or
// the path of an edit contains a value that is neither a mapping nor a list with this item.
Result<std::string> PatchYaml(std::string_view text, const std::vector<TextEdit>& edits);

// Converts edits to JSON and back. Edits are stored as JSON, so that a later run can revert them.
// EditsFromJson returns INVALID_ARGUMENT if the JSON is not a list of edits.
Json EditsToJson(const std::vector<TextEdit>& edits);
Result<std::vector<TextEdit>> EditsFromJson(const Json& json);

}  // namespace tessera
