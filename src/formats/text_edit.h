// SPDX-License-Identifier: Apache-2.0
// A change to one key of a configuration file, and its effect on the parsed document. The patchers
// apply it to the text and compare with ApplyEdit. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera {

using KeyPath = std::vector<std::string>;

struct TextEdit {
  enum class Kind {
    kSet,         // the key has this value, made with its tables where it is missing
    kRemove,      // the key, or the table with all below it, is gone; fine if it is not there
    kAppend,      // the array at the key, made where it is missing, has this item
    kRemoveItem,  // the array has no such item; fine if there is none
  };
  Kind kind = Kind::kSet;
  KeyPath path;
  Json value;

  bool operator==(const TextEdit&) const = default;
};

// INVALID_ARGUMENT: the path contains a value that is not an object, or the target is not an array.
// REQUIRES: an object and a non-empty path.
Status ApplyEdit(const TextEdit& edit, Json* document);

// The value at `path`, or null.
const Json* FindPath(const Json& document, const KeyPath& path);

// Edits as JSON, so that a later run can revert them. EditsFromJson: INVALID_ARGUMENT.
Json EditsToJson(const std::vector<TextEdit>& edits);
Result<std::vector<TextEdit>> EditsFromJson(const Json& json);

}  // namespace tessera
