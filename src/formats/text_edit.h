// SPDX-License-Identifier: Apache-2.0
// One change to a key of somebody's configuration file, and what it means on the parsed document.
// The patchers do the same on the text; ApplyEdit is their judge. Threads: pure.
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

// INVALID_ARGUMENT: the edit goes through something that is no object, or no array.
// REQUIRES: an object, and a path that is not empty.
Status ApplyEdit(const TextEdit& edit, Json* document);

// The value at `path`, or null.
const Json* FindPath(const Json& document, const KeyPath& path);

// Edits as JSON, so that they can be undone by a later run. ParseEdits: INVALID_ARGUMENT.
Json EditsToJson(const std::vector<TextEdit>& edits);
Result<std::vector<TextEdit>> EditsFromJson(const Json& json);

}  // namespace tessera
