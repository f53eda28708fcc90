// SPDX-License-Identifier: Apache-2.0
// Plans the edits of Docker's daemon.json and of CRI-O's drop-in.
#include <array>

#include "src/base/strings.h"
#include "src/formats/toml.h"
#include "src/runtime/engine/plan.h"

namespace tessera::engine {
namespace {

// The parsed document; {} if the file is missing or empty.
Result<Json> ReadJson(const std::string& path, const ConfigTree& tree) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, tree.read(path));
  // The patcher's errors name the line.
  RETURN_IF_ERROR(EditText(Format::kJson, text.value_or(""), {}).Annotate(path).status());
  std::string_view body = text ? std::string_view(*text) : "";
  if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);
  if (Trim(body).empty()) return Json::MakeObject();
  return ParseJson(body);
}

// The value of a CRI-O key; the last file of `paths` that has it takes effect.
Json LastValue(const std::vector<std::string>& paths, const ConfigTree& tree, const KeyPath& key) {
  Json last;
  for (const std::string& path : paths) {
    const auto text = tree.read(path);
    if (!text.ok() || !text->has_value()) continue;
    const auto document = ParseToml(**text);
    if (!document.ok()) continue;
    if (const Json* value = FindPath(*document, key)) last = *value;
  }
  return last;
}

}  // namespace

Result<DockerReload> MakeDockerReload(const std::optional<std::string>& text) {
  ConfigTree tree;
  tree.read = [&](const std::string&) -> Result<std::optional<std::string>> { return text; };
  ASSIGN_OR_RETURN(const Json document, ReadJson("daemon.json", tree));
  std::vector<TextEdit> edits;
  const Json* const name = document.Find("default-runtime");
  if (name == nullptr) {
    edits.push_back({EditKind::kSet, {"default-runtime"}, Json::String("runc")});
  }
  if (document.Find("runtimes") == nullptr) {
    edits.push_back({EditKind::kSet, {"runtimes"}, Json::MakeObject()});
  }
  DockerReload reload;
  ASSIGN_OR_RETURN(reload.text, EditText(Format::kJson, text.value_or(""), edits));
  reload.default_runtime = name != nullptr && name->is_string() ? name->string_value() : "runc";
  return reload;
}

Result<Plan> PlanDocker(const EngineSettings& settings, const ConfigTree& tree) {
  ASSIGN_OR_RETURN(const Json document, ReadJson(settings.config, tree));
  FilePlan file;
  file.path = settings.config;
  file.format = Format::kJson;
  if (settings.set_as_default) {
    file.edits.push_back(
        {EditKind::kSet, {"default-runtime"}, Json::String(settings.runtime_name)});
  }
  const KeyPath runtime = {"runtimes", settings.runtime_name};
  const Json* const old = FindPath(document, runtime);
  // dockerd rejects a runtime with both "runtimeType" (a containerd shim) and a path.
  if (old == nullptr || !old->is_object() || old->Find("runtimeType") != nullptr) {
    file.edits.push_back({EditKind::kSet, runtime,
                          Json::MakeObject({{"args", Json::MakeArray()},
                                            {"path", Json::String(settings.runtime_path)}})});
  } else {
    file.edits.push_back({EditKind::kSet,
                          {"runtimes", settings.runtime_name, "path"},
                          Json::String(settings.runtime_path)});
  }
  if (settings.enable_cdi) {
    file.edits.push_back({EditKind::kSet, {"features", "cdi"}, Json::Bool(true)});
  }
  return Plan{{std::move(file)}, {}, {}};
}

Result<Plan> PlanCrio(const EngineSettings& settings, const ConfigTree& tree) {
  if (settings.drop_in.empty()) {
    return Error(Code::kInvalidArgument,
                 "CRI-O is configured by a drop-in: --drop-in-config is empty");
  }
  // CRI-O reads the main file, then its drop-ins in the order of their names; later values win.
  std::vector<std::string> paths = {settings.config};
  const std::string dir = settings.drop_in.substr(0, settings.drop_in.rfind('/'));
  for (const std::string& path : tree.glob(dir + "/*")) {
    if (path != settings.drop_in) paths.push_back(path);
  }
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::optional<std::string> text, tree.read(path));
    if (text) RETURN_IF_ERROR(ParseToml(*text).Annotate(path).status());
  }
  FilePlan file;
  file.path = settings.drop_in;
  file.is_drop_in = true;
  file.initial_text =
      "# Written by \"tessera-runtime configure\"; \"tessera-runtime configure --undo\" removes "
      "it.\n";
  if (settings.set_as_default) {
    file.edits.push_back({EditKind::kSet,
                          {"crio", "runtime", "default_runtime"},
                          Json::String(settings.runtime_name)});
  }
  const KeyPath at = {"crio", "runtime", "runtimes", settings.runtime_name};
  file.owned_table = at;
  const auto set = [&](std::string_view key, Json value) {
    KeyPath path = at;
    path.emplace_back(key);
    file.edits.push_back({EditKind::kSet, std::move(path), std::move(value)});
  };
  set("runtime_path", Json::String(settings.runtime_path));
  set("runtime_type", Json::String("oci"));
  // Keep the monitor and annotations of the current default runtime.
  const Json name = LastValue(paths, tree, {"crio", "runtime", "default_runtime"});
  const std::string source = name.is_string() ? name.string_value() : "runc";
  static constexpr std::array<std::string_view, 4> kCopiedKeys = {
      "runtime_root", "monitor_path", "monitor_cgroup", "allowed_annotations"};
  for (const std::string_view key : kCopiedKeys) {
    const Json value =
        LastValue(paths, tree, {"crio", "runtime", "runtimes", source, std::string(key)});
    if (!value.is_null()) set(key, value);
  }
  for (const std::string& path : paths) {
    const auto text = tree.read(path);
    if (path <= settings.drop_in || path == settings.config || !text.ok() || !text->has_value())
      continue;
    const auto document = ParseToml(**text);
    if (settings.set_as_default && document.ok() &&
        FindPath(*document, {"crio", "runtime", "default_runtime"}) != nullptr) {
      return Error(Code::kFailedPrecondition,
                   "{} is read after {} and sets default_runtime: rename it so that it sorts "
                   "before, or give another --drop-in-config",
                   path, settings.drop_in);
    }
  }
  Plan plan{{std::move(file)}, {paths.begin() + 1, paths.end()}, {}};
  if (settings.enable_cdi) plan.notes.emplace_back("CRI-O always injects CDI devices");
  return plan;
}

}  // namespace tessera::engine
