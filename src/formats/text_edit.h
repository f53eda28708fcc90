// SPDX-License-Identifier: Apache-2.0
// A change to one key of a configuration file, and its effect on the parsed document. The patchers
// change the text, parse the result and compare it with ApplyEdit's document. Threads: pure.
#pragma once

#include <string>
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

// Converts edits to JSON and back. Edits are stored as JSON, so that a later run can revert them.
// EditsFromJson returns INVALID_ARGUMENT if the JSON is not a list of edits.
Json EditsToJson(const std::vector<TextEdit>& edits);
Result<std::vector<TextEdit>> EditsFromJson(const Json& json);

}  // namespace tessera
