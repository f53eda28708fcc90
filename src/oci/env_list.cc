// SPDX-License-Identifier: Apache-2.0
#include "src/oci/env_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/strings.h"
#include "src/oci/config_document.h"

namespace tessera::oci {
namespace {

bool IsEntryOf(const Json& entry, std::string_view name) {
  if (!entry.is_string()) return false;
  const std::string_view text = entry.string_value();
  return text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=';
}

}  // namespace

EnvView::EnvView(const Json* list) : list_(list != nullptr && list->is_array() ? list : nullptr) {}

std::optional<std::string> EnvView::Get(std::string_view name) const {
  if (list_ == nullptr) return std::nullopt;
  const auto& items = list_->items();
  const auto found = std::find_if(items.rbegin(), items.rend(),
                                  [&](const Json& entry) { return IsEntryOf(entry, name); });
  if (found == items.rend()) return std::nullopt;
  return found->string_value().substr(name.size() + 1);
}

std::vector<std::pair<std::string, std::string>> EnvView::FindByPrefix(
    std::string_view prefix) const {
  std::vector<std::pair<std::string, std::string>> found;
  if (list_ == nullptr) return found;
  for (const Json& entry : list_->items()) {
    if (!entry.is_string() || !entry.string_value().starts_with(prefix)) continue;
    const std::string& text = entry.string_value();
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    found.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

void EnvList::Set(std::string_view name, std::string_view value) {
  Json text = Json::String(fmt::format("{}={}", name, value));
  auto& items = list_->items();
  const auto matches = [&](const Json& entry) { return IsEntryOf(entry, name); };
  const auto first = std::find_if(items.begin(), items.end(), matches);
  if (first == items.end()) return list_->Append(std::move(text));
  *first = std::move(text);
  items.erase(std::remove_if(first + 1, items.end(), matches), items.end());
}

void EnvList::AppendDir(std::string_view name, std::string_view dir,
                        std::string_view default_list) {
  const std::string list = Get(name).value_or(std::string(default_list));
  const auto parts = Split(list, ':');
  if (std::find(parts.begin(), parts.end(), dir) != parts.end()) return;
  Set(name, list.empty() ? std::string(dir) : fmt::format("{}:{}", list, dir));
}

void EnvList::RemoveFilesBelow(std::string_view name, std::string_view dir) {
  const std::optional<std::string> list = Get(name);
  if (!list) return;
  constexpr std::string_view kSeparators = ": ";
  std::vector<std::string_view> remaining;
  bool has_removed = false;
  for (size_t at = 0; at <= list->size();) {
    const size_t end = std::min(list->find_first_of(kSeparators, at), list->size());
    const std::string_view file = std::string_view(*list).substr(at, end - at);
    IsBelow(CleanPath(file), dir) ? void(has_removed = true) : remaining.push_back(file);
    at = end + 1;
  }
  if (has_removed) Set(name, fmt::format("{}", fmt::join(remaining, ":")));
}

}  // namespace tessera::oci
