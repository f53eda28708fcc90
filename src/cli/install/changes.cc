// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/changes.h"

#include <algorithm>
#include <array>

#include "src/base/status.h"

namespace tessera::cli {
namespace {

constexpr size_t kMaxValueLength = 120;
constexpr std::array<std::string_view, 6> kServerFields = {"metadata.managedFields",
                                                           "metadata.resourceVersion",
                                                           "metadata.generation",
                                                           "metadata.uid",
                                                           "status",
                                                           "metadata.creationTimestamp"};

std::string ValueText(const Json* value) {
  if (value == nullptr) return "(none)";
  std::string text = value->Serialize();
  if (text.size() > kMaxValueLength) text = text.substr(0, kMaxValueLength) + "...";
  return text;
}

bool HasNames(const Json& list) {
  return std::ranges::all_of(list.items(), [](const Json& item) {
    return item.is_object() && item.StringAt("name").ok();
  });
}

// The items of a list as members of an object, by their names or by their positions.
Json AsObject(const Json& list, bool by_name) {
  Json object = Json::MakeObject();
  for (size_t i = 0; i < list.items().size(); ++i) {
    const Json& item = list.items()[i];
    object.Set(by_name ? item.StringAt("name").value() : std::to_string(i), item);
  }
  return object;
}

class Comparison {
 public:
  void Compare(const Json* before, const Json* after, const std::string& path) {
    if (before != nullptr && after != nullptr && *before == *after) return;
    if (std::ranges::find(kServerFields, path) != kServerFields.end()) return;
    if (before != nullptr && after != nullptr) {
      if (before->is_object() && after->is_object())
        return CompareMembers(*before, *after, path, ".");
      if (before->is_array() && after->is_array()) return CompareLists(*before, *after, path);
    }
    lines.push_back(fmt::format("{}: {} -> {}", path, ValueText(before), ValueText(after)));
  }

  std::vector<std::string> lines;

 private:
  void CompareMembers(const Json& before, const Json& after, const std::string& path,
                      std::string_view form) {
    const auto path_to = [&](const std::string& key) {
      if (form == "[]") return fmt::format("{}[{}]", path, key);
      return path.empty() ? key : path + "." + key;
    };
    for (const auto& [key, value] : before.members())
      Compare(&value, after.Find(key), path_to(key));
    for (const auto& [key, value] : after.members()) {
      if (before.Find(key) == nullptr) Compare(nullptr, &value, path_to(key));
    }
  }

  void CompareLists(const Json& before, const Json& after, const std::string& path) {
    const bool by_name = HasNames(before) && HasNames(after);
    CompareMembers(AsObject(before, by_name), AsObject(after, by_name), path, "[]");
  }
};

}  // namespace

std::vector<std::string> ChangesOf(const Json& before, const Json& after) {
  Comparison comparison;
  if (after.StringAt("kind").value_or("") == "Secret") {
    Json old_secret = before, new_secret = after;
    old_secret.Erase("data");
    new_secret.Erase("data");
    comparison.Compare(&old_secret, &new_secret, "");
  } else {
    comparison.Compare(&before, &after, "");
  }
  return comparison.lines;
}

}  // namespace tessera::cli
