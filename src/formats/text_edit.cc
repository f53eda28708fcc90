// SPDX-License-Identifier: Apache-2.0
#include "src/formats/text_edit.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera {
namespace {

constexpr std::array<std::pair<EditKind, std::string_view>, 4> kKindNames = {{
    {EditKind::kSet, "set"},
    {EditKind::kRemove, "remove"},
    {EditKind::kAppend, "append"},
    {EditKind::kRemoveItem, "removeItem"},
}};

bool CreatesParents(EditKind kind) { return kind == EditKind::kSet || kind == EditKind::kAppend; }

Status AppendItem(const TextEdit& edit, Json* parent) {
  ASSIGN_OR_RETURN(Json * array, parent->EnsureArray(edit.path.back()));
  const Json::Array& items = array->items();
  if (std::find(items.begin(), items.end(), edit.value) == items.end()) array->Append(edit.value);
  return Status::Ok();
}

Status RemoveItem(const TextEdit& edit, Json* parent) {
  Json* array = parent->Find(edit.path.back());
  if (array == nullptr) return Status::Ok();
  if (!array->is_array()) {
    return Error(Code::kInvalidArgument, "\"{}\" is not an array", edit.path.back());
  }
  std::erase(array->items(), edit.value);
  return Status::Ok();
}

}  // namespace

Status ApplyEdit(const TextEdit& edit, Json* document) {
  Json* parent = document;
  for (size_t i = 0; i + 1 < edit.path.size(); ++i) {
    if (!CreatesParents(edit.kind)) {
      parent = parent->Find(edit.path[i]);
      if (parent == nullptr) return Status::Ok();
      if (!parent->is_object()) {
        return Error(Code::kInvalidArgument, "\"{}\" is not an object", edit.path[i]);
      }
      continue;
    }
    ASSIGN_OR_RETURN(parent, parent->EnsureObject(edit.path[i]));
  }
  switch (edit.kind) {
    case EditKind::kSet:
      parent->Set(edit.path.back(), edit.value);
      return Status::Ok();
    case EditKind::kRemove:
      parent->Erase(edit.path.back());
      return Status::Ok();
    case EditKind::kAppend:
      return AppendItem(edit, parent);
    case EditKind::kRemoveItem:
      return RemoveItem(edit, parent);
  }
  return Status::Ok();
}

Json EditsToJson(const std::vector<TextEdit>& edits) {
  Json list = Json::MakeArray();
  for (const TextEdit& edit : edits) {
    Json entry = Json::MakeObject();
    for (const auto& [kind, name] : kKindNames) {
      if (kind == edit.kind) entry.Set("do", Json::String(name));
    }
    entry.Set("path", Json::Strings(edit.path));
    if (edit.kind != EditKind::kRemove) entry.Set("value", edit.value);
    list.Append(std::move(entry));
  }
  return list;
}

Result<std::vector<TextEdit>> EditsFromJson(const Json& json) {
  if (!json.is_array()) return Error(Code::kInvalidArgument, "the edits are not an array");
  std::vector<TextEdit> edits;
  for (const Json& entry : json.items()) {
    TextEdit edit;
    ASSIGN_OR_RETURN(const std::string name, entry.StringAt("do"));
    const auto* const found = std::find_if(kKindNames.begin(), kKindNames.end(),
                                           [&](const auto& row) { return row.second == name; });
    if (found == kKindNames.end()) {
      return Error(Code::kInvalidArgument, "unknown edit \"{}\"", name);
    }
    edit.kind = found->first;
    const Json* path = entry.Find("path");
    if (path == nullptr || !path->is_array() || path->items().empty()) {
      return Error(Code::kInvalidArgument, "an edit has no path");
    }
    for (const Json& key : path->items()) {
      if (!key.is_string())
        return Error(Code::kInvalidArgument, "a path has a key that is not a string");
      edit.path.push_back(key.string_value());
    }
    if (const Json* value = entry.Find("value")) edit.value = *value;
    edits.push_back(std::move(edit));
  }
  return edits;
}

}  // namespace tessera
