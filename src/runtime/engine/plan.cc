// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/plan.h"

#include <algorithm>
#include <charconv>

#include "src/base/strings.h"
#include "src/formats/json_patcher.h"
#include "src/formats/toml.h"
#include "src/formats/toml_patcher.h"
#include "src/runtime/engine/leftovers.h"

namespace tessera::engine {
namespace {

Result<Json> Parse(Format format, std::string_view text) {
  if (format == Format::kToml) return ParseToml(text);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (Trim(text).empty()) return Json::MakeObject();
  return ParseJson(text);
}

Result<std::string> Patch(Format format, std::string_view text,
                          const std::vector<TextEdit>& edits) {
  return format == Format::kToml ? PatchToml(text, edits) : PatchJson(text, edits);
}

// The path that undo removes for a key that `before` lacks: the owned table if that is new too,
// else the key.
const KeyPath& PathToRemove(const FilePlan& file, const Json& before, const KeyPath& path) {
  const bool inside = !file.owned_table.empty() && path.size() >= file.owned_table.size() &&
                      std::equal(file.owned_table.begin(), file.owned_table.end(), path.begin());
  return inside && FindPath(before, file.owned_table) == nullptr ? file.owned_table : path;
}

}  // namespace

std::optional<Version> ParseVersion(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  Version version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  if (minor.ec != std::errc()) return std::nullopt;
  return version;
}

Result<Plan> MakePlan(Engine engine, const EngineSettings& settings, const ConfigTree& tree) {
  Result<Plan> plan = engine == Engine::kContainerd ? PlanContainerd(settings, tree)
                      : engine == Engine::kDocker   ? PlanDocker(settings, tree)
                                                    : PlanCrio(settings, tree);
  if (!plan.ok()) return plan;
  for (std::string& line : FindLeftovers(settings, *plan, tree)) {
    plan->notes.push_back(std::move(line));
  }
  return plan;
}

Result<std::string> ApplyFilePlan(const FilePlan& file, const std::optional<std::string>& text) {
  const bool is_new = file.is_drop_in || !text;
  return Patch(file.format, is_new ? file.initial_text : *text, file.edits).Annotate(file.path);
}

Result<std::vector<TextEdit>> UndoEdits(const FilePlan& file,
                                        const std::optional<std::string>& text) {
  const bool is_new = file.is_drop_in || !text;
  ASSIGN_OR_RETURN(const Json before, Parse(file.format, is_new ? file.initial_text : *text));
  std::vector<TextEdit> undo;
  for (const TextEdit& edit : file.edits) {
    const Json* const old = FindPath(before, edit.path);
    if (edit.kind == EditKind::kAppend) {
      const bool had = old != nullptr && old->is_array() &&
                       std::count(old->items().begin(), old->items().end(), edit.value) > 0;
      if (!had) undo.push_back({EditKind::kRemoveItem, edit.path, edit.value});
    } else if (old != nullptr) {
      undo.push_back({EditKind::kSet, edit.path, *old});
    } else {
      const TextEdit remove{EditKind::kRemove, PathToRemove(file, before, edit.path), {}};
      if (std::find(undo.begin(), undo.end(), remove) == undo.end()) undo.push_back(remove);
    }
  }
  return undo;
}

}  // namespace tessera::engine
