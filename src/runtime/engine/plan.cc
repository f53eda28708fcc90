// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/plan.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/text_edit.h"
#include "src/formats/toml.h"

namespace tessera::engine {
namespace {

Result<Json> Parse(Format format, std::string_view text) {
  if (format == Format::kToml) return ParseToml(text);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (Trim(text).empty()) return Json::MakeObject();
  return ParseJson(text);
}

// The path that undo removes for a key that `before` lacks: the owned table if `before` lacks the
// whole table, else the key.
const KeyPath& PathToRemove(const FilePlan& file, const Json& before, const KeyPath& path) {
  const bool is_inside = !file.owned_table.empty() && path.size() >= file.owned_table.size() &&
                         std::equal(file.owned_table.begin(), file.owned_table.end(), path.begin());
  return is_inside && FindPath(before, file.owned_table) == nullptr ? file.owned_table : path;
}

constexpr std::array<std::string_view, 6> kNvidiaPrograms = {
    "nvidia-container-runtime",        "nvidia-container-runtime.cdi",
    "nvidia-container-runtime.legacy", "nvidia-container-runtime.experimental",
    "nvidia-container-runtime-hook",   "nvidia-container-toolkit",
};
// Hook directories of CRI-O and podman.
constexpr std::array<std::string_view, 2> kHookDirs = {"/etc/containers/oci/hooks.d",
                                                       "/usr/share/containers/oci/hooks.d"};
constexpr std::array<std::string_view, 2> kCdiDirs = {"/etc/cdi", "/var/run/cdi"};

bool IsNvidiaProgram(const Json& value) {
  return value.is_string() &&
         std::ranges::count(kNvidiaPrograms, std::string_view(BaseName(value.string_value()))) != 0;
}

class LeftoverFinder {
 public:
  LeftoverFinder(const EngineSettings& settings, const ConfigTree& tree)
      : settings_(settings), tree_(tree) {}

  void ReadEngineFile(const std::string& path) {
    if (path == settings_.drop_in) return;
    const auto text = tree_.read(path);
    if (!text.ok() || !text->has_value()) return;
    const bool is_json = path.ends_with(".json");
    const Result<Json> document = is_json ? ParseJson(**text) : ParseToml(**text);
    if (document.ok()) Walk(path, *document, "", /*in_runtimes=*/false);
  }

  void ReadHooks() {
    for (const std::string_view dir : kHookDirs) {
      for (const std::string& path : tree_.glob(JoinPath(dir, "*.json"))) {
        const auto text = tree_.read(path);
        const Result<Json> hook =
            text.ok() && text->has_value() ? ParseJson(**text) : Json::MakeObject();
        const Json* program = hook.ok() ? FindPath(*hook, {"hook", "path"}) : nullptr;
        if (program == nullptr || !IsNvidiaProgram(*program)) continue;
        found_.push_back(fmt::format(
            "{} runs {} for containers of CRI-O and podman, which gives GPUs that Tessera did not "
            "grant: remove the file",
            path, program->string_value()));
      }
    }
  }

  void ReadCdi() {
    for (const std::string_view dir : kCdiDirs) {
      for (const char* pattern : {"*.yaml", "*.json"}) {
        for (const std::string& path : tree_.glob(JoinPath(dir, pattern))) {
          const auto text = tree_.read(path);
          if (!text.ok() || !text->has_value()) continue;
          if ((*text)->find("nvidia.com/gpu") == std::string::npos) continue;
          found_.push_back(fmt::format(
              "{} describes GPUs for the Container Device Interface: an engine gives them to every "
              "container that names nvidia.com/gpu=..., bypassing Tessera: remove the file",
              path));
        }
      }
    }
  }

  std::vector<std::string> Found() { return std::move(found_); }

 private:
  // `handler` is the key below "runtimes" that contains `json`.
  void Walk(const std::string& path, const Json& json, const std::string& handler,
            bool in_runtimes) {
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.members()) {
      const std::string& name = in_runtimes ? key : handler;
      if (name == settings_.runtime_name) continue;
      if (IsNvidiaProgram(value)) {
        found_.push_back(fmt::format(
            "{}: the runtime handler \"{}\" runs {}, which gives GPUs that Tessera did not "
            "grant: remove it, and RuntimeClasses that name it",
            path, name, value.string_value()));
      }
      Walk(path, value, name, key == "runtimes");
    }
  }

  const EngineSettings& settings_;
  const ConfigTree& tree_;
  std::vector<std::string> found_;
};

}  // namespace

Result<std::string> EditText(Format format, std::string_view text,
                             const std::vector<TextEdit>& edits) {
  return format == Format::kToml ? PatchToml(text, edits) : PatchJson(text, edits);
}

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

Result<Plan> MakePlan(EngineKind engine, const EngineSettings& settings, const ConfigTree& tree) {
  Result<Plan> plan = engine == EngineKind::kContainerd ? PlanContainerd(settings, tree)
                      : engine == EngineKind::kDocker   ? PlanDocker(settings, tree)
                                                        : PlanCrio(settings, tree);
  if (!plan.ok()) return plan;
  for (std::string& line : FindLeftovers(settings, *plan, tree)) {
    plan->notes.push_back(std::move(line));
  }
  return plan;
}

Result<std::string> ApplyFilePlan(const FilePlan& file, const std::optional<std::string>& text) {
  const bool is_new = file.is_drop_in || !text;
  return EditText(file.format, is_new ? file.initial_text : *text, file.edits).Annotate(file.path);
}

Result<std::vector<TextEdit>> UndoEdits(const FilePlan& file,
                                        const std::optional<std::string>& text) {
  const bool is_new = file.is_drop_in || !text;
  ASSIGN_OR_RETURN(const Json before, Parse(file.format, is_new ? file.initial_text : *text));
  std::vector<TextEdit> undo;
  for (const TextEdit& edit : file.edits) {
    const Json* const old = FindPath(before, edit.path);
    if (edit.kind == EditKind::kAppend) {
      const bool had_item = old != nullptr && old->is_array() &&
                            std::count(old->items().begin(), old->items().end(), edit.value) > 0;
      if (!had_item) undo.push_back({EditKind::kRemoveItem, edit.path, edit.value});
    } else if (old != nullptr) {
      undo.push_back({EditKind::kSet, edit.path, *old});
    } else {
      const TextEdit remove{EditKind::kRemove, PathToRemove(file, before, edit.path), {}};
      if (std::find(undo.begin(), undo.end(), remove) == undo.end()) undo.push_back(remove);
    }
  }
  return undo;
}

std::vector<std::string> FindLeftovers(const EngineSettings& settings, const Plan& plan,
                                       const ConfigTree& tree) {
  LeftoverFinder finder(settings, tree);
  finder.ReadEngineFile(settings.config);
  for (const std::string& path : plan.imports) finder.ReadEngineFile(path);
  finder.ReadHooks();
  finder.ReadCdi();
  return finder.Found();
}

}  // namespace tessera::engine
