// SPDX-License-Identifier: Apache-2.0
// The plan for containerd: a main file of version 1, 2, 3 or above, and its imports.
#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/toml.h"
#include "src/runtime/engine/plan.h"

namespace tessera::engine {
namespace {

// From this version on containerd merges the tables of all files key by key. Before, the last file
// with a plugin's section replaces the whole section (containerd issue 5837).
constexpr Version kMergesDeeplyFrom{2, 1};
// From this version on containerd imports kDefaultImports by default.
constexpr Version kImportsByDefaultFrom{2, 2};
// From this version on containerd reads a file of version 1 as version 3, without its plugins.cri.
constexpr Version kIgnoresVersion1From{2, 2};
constexpr char kDefaultImports[] = "/etc/containerd/conf.d/*.toml";
constexpr char kRunc[] = "io.containerd.runc.v2";

struct ConfigFile {
  std::string path;
  Json document;
  int64_t version = 0;
};

std::string_view CriPlugin(int64_t version) {
  if (version >= 3) return "io.containerd.cri.v1.runtime";
  return version == 2 ? "io.containerd.grpc.v1.cri" : "cri";
}

KeyPath CriPath(int64_t version, KeyPath rest) {
  KeyPath path = {"plugins", std::string(CriPlugin(version))};
  path.insert(path.end(), rest.begin(), rest.end());
  return path;
}

Result<ConfigFile> ParseFile(const std::string& path, const std::string& text,
                             int64_t default_version) {
  auto document = ParseToml(text);
  if (!document.ok()) return document.status().Annotate(path);
  ConfigFile file{path, *std::move(document), default_version};
  const Json* const plugins = file.document.Find("plugins");
  if (plugins != nullptr && !plugins->is_object()) {
    return Error(Code::kInvalidArgument, "{}: line {}: plugins is not a table", path,
                 plugins->line());
  }
  if (file.document.Find("version") != nullptr) {
    auto version = file.document.IntAt("version");
    if (!version.ok()) return version.status().Annotate(path);
    file.version = *version;
  }
  return file;
}

std::vector<std::string> ImportPatterns(const ConfigFile& root, const EngineSettings& settings) {
  std::vector<std::string> patterns;
  if (settings.engine_version && *settings.engine_version >= kImportsByDefaultFrom) {
    patterns.emplace_back(kDefaultImports);
  }
  const Json* imports = root.document.Find("imports");
  if (imports == nullptr || !imports->is_array()) return patterns;
  for (const Json& item : imports->items()) {
    if (!item.is_string()) continue;
    const std::string& pattern = item.string_value();
    patterns.push_back(pattern.starts_with('/') ? pattern : JoinPath(DirName(root.path), pattern));
  }
  return patterns;
}

bool Covers(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0;
  });
}

void MergeDeep(const Json& from, Json* into) {
  for (const auto& [key, value] : from.members()) {
    Json* const old = into->Find(key);
    if (old != nullptr && old->is_object() && value.is_object()) {
      MergeDeep(value, old);
    } else {
      into->Set(key, value);
    }
  }
}

class ContainerdPlanner {
 public:
  ContainerdPlanner(const EngineSettings& settings, const ConfigTree& tree)
      : settings_(settings), tree_(tree) {}

  Result<Plan> Make() {
    RETURN_IF_ERROR(ReadFiles());
    if (UsesDropIn()) {
      PlanDropIn();
    } else {
      PlanInPlace();
    }
    RETURN_IF_ERROR(CheckEffect());
    NoteDisabledCri();
    return plan_;
  }

 private:
  Status ReadFiles() {
    ASSIGN_OR_RETURN(const std::optional<std::string> text, tree_.read(settings_.config));
    // A file without a version counts as version 1. The edits set the version of an empty file.
    ASSIGN_OR_RETURN(ConfigFile root, ParseFile(settings_.config, text.value_or(""), 1));
    if (root.document.members().empty()) {
      main_is_empty_ = true;
      root.version = settings_.engine_version && settings_.engine_version->major >= 2 ? 3 : 2;
    }
    if (root.version < 2 && settings_.engine_version &&
        *settings_.engine_version >= kIgnoresVersion1From) {
      root.version = 3;
      plan_.notes.push_back(
          fmt::format("{} has version 1: this containerd ignores its runtimes", settings_.config));
    }
    const std::vector<std::string> patterns = ImportPatterns(root, settings_);
    imports_drop_in_ = !settings_.drop_in.empty() && Covers(patterns, settings_.drop_in);
    files_.push_back(std::move(root));
    for (const std::string& pattern : patterns) {
      for (const std::string& path : tree_.glob(pattern)) {
        RETURN_IF_ERROR(ReadImport(path));
      }
    }
    return Status::Ok();
  }

  Status ReadImport(const std::string& path) {
    const auto same = [&](const ConfigFile& file) { return file.path == path; };
    if (path == settings_.drop_in || std::any_of(files_.begin(), files_.end(), same)) {
      return Status::Ok();
    }
    ASSIGN_OR_RETURN(const std::optional<std::string> text, tree_.read(path));
    if (!text) return Status::Ok();
    ASSIGN_OR_RETURN(ConfigFile file, ParseFile(path, *text, root().version));
    files_.push_back(std::move(file));
    return Status::Ok();
  }

  const ConfigFile& root() const { return files_.front(); }
  bool MergesDeeply() const {
    // Version 4 came with containerd 2.3.
    return root().version >= 4 ||
           (settings_.engine_version && *settings_.engine_version >= kMergesDeeplyFrom);
  }
  static const Json* Section(const ConfigFile& file) {
    return FindPath(file.document, CriPath(file.version, {}));
  }
  bool AnyFileHasSection() const {
    return std::any_of(files_.begin(), files_.end(),
                       [](const ConfigFile& file) { return Section(file) != nullptr; });
  }
  bool UsesDropIn() const {
    if (settings_.drop_in.empty() || root().version < 2) return false;
    return MergesDeeply() || !AnyFileHasSection();
  }

  // The CRI plugin's section as containerd merges it from all files.
  Json MergedSection(const std::vector<ConfigFile>& files) const {
    Json merged = Json::MakeObject();
    for (const ConfigFile& file : files) {
      const Json* section = Section(file);
      if (section == nullptr || !section->is_object()) continue;
      if (!MergesDeeply()) merged = Json::MakeObject();
      MergeDeep(*section, &merged);
    }
    return merged;
  }

  // The current default runtime. Tessera's runtime must keep its options. Containers would not
  // start, for example, with another cgroup driver than the kubelet's.
  Json CurrentDefaultRuntime() const {
    const Json merged = MergedSection(files_);
    const Json* name = FindPath(merged, {"containerd", "default_runtime_name"});
    for (const std::string& candidate :
         {name != nullptr && name->is_string() ? name->string_value() : "runc",
          std::string("runc")}) {
      const Json* runtime = FindPath(merged, {"containerd", "runtimes", candidate});
      if (runtime == nullptr || !runtime->is_object()) continue;
      const Json* type = runtime->Find("runtime_type");
      if (type == nullptr || *type == Json::String(kRunc)) return *runtime;
    }
    return Json::MakeObject();
  }

  // Scalars and arrays of `from`, each under its own key below `path`.
  static void CopyLeaves(const Json& from, const KeyPath& path, std::vector<TextEdit>* edits) {
    // RuntimeEdits sets the keys of the program and its type to Tessera's values.
    static constexpr std::array<std::string_view, 7> kSkippedKeys = {
        "runtime_type", "runtime_path", "runtime_engine", "runtime_root",
        "BinaryName",   "Runtime",      "options"};
    for (const auto& [key, value] : from.members()) {
      if (std::find(kSkippedKeys.begin(), kSkippedKeys.end(), key) != kSkippedKeys.end()) continue;
      KeyPath inner = path;
      inner.push_back(key);
      if (value.is_object()) {
        CopyLeaves(value, inner, edits);
      } else {
        edits->push_back({EditKind::kSet, inner, value});
      }
    }
  }

  KeyPath RuntimeTable(int64_t version) const {
    return CriPath(version, {"containerd", "runtimes", settings_.runtime_name});
  }

  std::vector<TextEdit> RuntimeEdits(int64_t version) const {
    std::vector<TextEdit> edits;
    if (settings_.enable_cdi) {
      edits.push_back({EditKind::kSet, CriPath(version, {"enable_cdi"}), Json::Bool(true)});
    }
    if (settings_.set_as_default) {
      edits.push_back({EditKind::kSet, CriPath(version, {"containerd", "default_runtime_name"}),
                       Json::String(settings_.runtime_name)});
    }
    const KeyPath runtime = RuntimeTable(version);
    const Json source = CurrentDefaultRuntime();
    KeyPath at = runtime;
    at.emplace_back("runtime_type");
    edits.push_back({EditKind::kSet, at, Json::String(kRunc)});
    CopyLeaves(source, runtime, &edits);
    at.back() = "options";
    if (const Json* options = source.Find("options"); options != nullptr && options->is_object()) {
      CopyLeaves(*options, at, &edits);
    }
    at.emplace_back("BinaryName");
    edits.push_back({EditKind::kSet, at, Json::String(settings_.runtime_path)});
    return edits;
  }

  void PlanDropIn() {
    FilePlan drop_in;
    drop_in.path = settings_.drop_in;
    drop_in.is_drop_in = true;
    // With a higher version than the main file's, containerd would not start (NVIDIA/aicr 1688).
    drop_in.initial_text = fmt::format(
        "# Written by \"tessera-runtime configure\"; \"tessera-runtime configure --undo\" removes "
        "it.\nversion = {}\n",
        root().version);
    drop_in.edits = RuntimeEdits(root().version);
    drop_in.owned_table = RuntimeTable(root().version);
    FilePlan main;
    main.path = settings_.config;
    if (main_is_empty_) {
      main.edits.push_back({EditKind::kSet, {"version"}, Json::Int(root().version)});
    }
    if (!imports_drop_in_) {
      main.edits.push_back({EditKind::kAppend, {"imports"}, Json::String(settings_.drop_in)});
    }
    if (!main.edits.empty()) plan_.files.push_back(std::move(main));
    plan_.files.push_back(std::move(drop_in));
  }

  // Edits the file whose section takes effect.
  void PlanInPlace() {
    const ConfigFile* target = &root();
    for (const ConfigFile& file : files_) {
      if (Section(file) != nullptr) target = &file;
    }
    FilePlan file;
    file.path = target->path;
    file.owned_table = RuntimeTable(target->version);
    if (main_is_empty_ && target == &root()) {
      file.edits.push_back({EditKind::kSet, {"version"}, Json::Int(target->version)});
    }
    for (TextEdit& edit : RuntimeEdits(target->version)) file.edits.push_back(std::move(edit));
    plan_.files.push_back(std::move(file));
    if (!settings_.drop_in.empty()) {
      plan_.notes.push_back(fmt::format(
          "{} is edited in place: {}", target->path,
          root().version < 2 ? "a configuration of version 1 has no drop-ins"
          : settings_.engine_version
              ? "containerd before 2.1 lets a drop-in replace the whole section"
              : "the version of containerd is unknown, and before 2.1 a drop-in replaces the "
                "whole section"));
    }
  }

  // Merges the planned files as containerd will, and rejects the plan if a later file overrides it.
  Status CheckEffect() {
    std::vector<ConfigFile> after = files_;
    for (const FilePlan& plan : plan_.files) {
      ASSIGN_OR_RETURN(const std::optional<std::string> text, tree_.read(plan.path));
      ASSIGN_OR_RETURN(const std::string patched, ApplyFilePlan(plan, text));
      ASSIGN_OR_RETURN(ConfigFile file, ParseFile(plan.path, patched, root().version));
      const auto same = std::find_if(after.begin(), after.end(), [&](const ConfigFile& other) {
        return other.path == plan.path;
      });
      if (same != after.end()) {
        *same = std::move(file);
      } else {
        after.push_back(std::move(file));
      }
    }
    SortAsImported(&after);
    const Json merged = MergedSection(after);
    const Json* const path = FindPath(
        merged, {"containerd", "runtimes", settings_.runtime_name, "options", "BinaryName"});
    const Json* const name = FindPath(merged, {"containerd", "default_runtime_name"});
    const bool is_effective = path != nullptr && *path == Json::String(settings_.runtime_path) &&
                              (!settings_.set_as_default ||
                               (name != nullptr && *name == Json::String(settings_.runtime_name)));
    for (const ConfigFile& file : after) {
      if (file.path != settings_.config) plan_.imports.push_back(file.path);
    }
    if (is_effective) return Status::Ok();
    return Error(Code::kFailedPrecondition,
                 "{} is imported after {} and overrides its runtimes: rename it so that it sorts "
                 "before, or give another --drop-in-config",
                 after.back().path, settings_.drop_in);
  }

  // An import pattern that matches the drop-in lists it among the files of its directory, by name.
  void SortAsImported(std::vector<ConfigFile>* files) const {
    if (!imports_drop_in_ || files->back().path != settings_.drop_in) return;
    ConfigFile drop_in = std::move(files->back());
    files->pop_back();
    const auto later = std::find_if(files->begin() + 1, files->end(), [&](const ConfigFile& file) {
      return DirName(file.path) == DirName(drop_in.path) && file.path > drop_in.path;
    });
    files->insert(later, std::move(drop_in));
  }

  void NoteDisabledCri() {
    for (const ConfigFile& file : files_) {
      const Json* disabled = file.document.Find("disabled_plugins");
      if (disabled == nullptr || !disabled->is_array()) continue;
      for (const Json& item : disabled->items()) {
        if (!item.is_string() || item.string_value().find("cri") == std::string::npos) continue;
        plan_.notes.push_back(
            fmt::format("{} disables the plugin {}: Kubernetes cannot use this "
                        "containerd until it is removed from disabled_plugins",
                        file.path, item.string_value()));
      }
    }
  }

  const EngineSettings& settings_;
  const ConfigTree& tree_;
  std::vector<ConfigFile> files_;  // the main file, then its imports
  bool main_is_empty_ = false;
  bool imports_drop_in_ = false;
  Plan plan_;
};

}  // namespace

Result<Plan> PlanContainerd(const EngineSettings& settings, const ConfigTree& tree) {
  return ContainerdPlanner(settings, tree).Make();
}

}  // namespace tessera::engine
