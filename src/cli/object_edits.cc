// SPDX-License-Identifier: Apache-2.0
#include "src/cli/object_edits.h"

#include <algorithm>

#include "src/base/status.h"

namespace tessera::cli {
namespace {

// The fields at one path of the object that one manager owns. In FieldsV1 the key of a member is
// "f:NAME", of a list's item "k:{"name":"agent"}" (its identity) or "v:"get"" (its value). A set
// without keys stands for the whole value.
struct OwnedFields {
  std::string manager;
  const Json* fields;
};
using Owners = std::vector<OwnedFields>;

bool IsItem(const std::string& key, const Json& item) {
  if (key.starts_with("v:")) {
    const Result<Json> value = ParseJson(key.substr(2));
    return value.ok() && *value == item;
  }
  if (!key.starts_with("k:") || !item.is_object()) return false;
  const Result<Json> identity = ParseJson(key.substr(2));
  // The identity may have defaults that the item leaves out, such as the protocol of a port.
  return identity.ok() && std::ranges::all_of(identity->members(), [&](const auto& member) {
           const Json* own = item.Find(member.first);
           return own == nullptr || *own == member.second;
         });
}

// The part of `owners` that is below the keys that `is_key` accepts.
template <typename IsKey>
Owners FieldsBelow(const Owners& owners, IsKey is_key) {
  Owners below;
  for (const OwnedFields& owner : owners) {
    for (const auto& [key, fields] : owner.fields->members()) {
      if (is_key(key)) below.push_back({owner.manager, &fields});
    }
  }
  return below;
}

bool AnyOwnsWholeValue(const Owners& owners) {
  return std::ranges::any_of(
      owners, [](const OwnedFields& owner) { return owner.fields->members().empty(); });
}

class EditFinder {
 public:
  // Adds the edits of `wanted`, which stands at `path`.
  void Compare(const Json& wanted, const Owners& installer, const Owners& others,
               const std::string& path) {
    if (installer.empty()) {
      edits.push_back({path, others.empty() ? "" : others.front().manager});
      return;
    }
    if (AnyOwnsWholeValue(installer)) return;
    const auto compare = [&](const Json& value, const std::string& child_path, auto is_key) {
      Compare(value, FieldsBelow(installer, is_key), FieldsBelow(others, is_key), child_path);
    };
    if (wanted.is_object()) {
      for (const auto& [name, value] : wanted.members()) {
        const std::string child_path = path.empty() ? name : fmt::format("{}.{}", path, name);
        if (value.is_null() || IsIdentity(child_path)) continue;
        compare(value, child_path,
                [key = "f:" + name](const std::string& other) { return other == key; });
      }
    } else if (wanted.is_array()) {
      for (size_t i = 0; i < wanted.items().size(); ++i) {
        const Json& item = wanted.items()[i];
        const std::string name = item.is_object() ? item.StringAt("name").value_or("") : "";
        compare(item, fmt::format("{}[{}]", path, name.empty() ? std::to_string(i) : name),
                [&](const std::string& key) { return IsItem(key, item); });
      }
    }
  }

  std::vector<FieldEdit> edits;

 private:
  static bool IsIdentity(const std::string& path) {
    return path == "apiVersion" || path == "kind" || path == "metadata.name" ||
           path == "metadata.namespace";
  }
};

}  // namespace

std::vector<FieldEdit> EditsOf(const Json& wanted, const Json& metadata) {
  Owners installer, others;
  for (const Json& entry : ItemsAt(metadata, {"managedFields"})) {
    const Json* fields = entry.Find("fieldsV1");
    if (fields == nullptr || !fields->is_object()) continue;
    const bool is_installer =
        FindPath(*fields, {"f:metadata", "f:labels", "f:app.kubernetes.io/name"});
    (is_installer ? installer : others)
        .push_back({entry.StringAt("manager").value_or("an unnamed client"), fields});
  }
  if (installer.empty()) return {};
  EditFinder finder;
  finder.Compare(wanted, installer, others, "");
  return std::move(finder.edits);
}

}  // namespace tessera::cli
