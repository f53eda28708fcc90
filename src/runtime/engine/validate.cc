// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/validate.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/toml.h"
#include "src/runtime/engine/host_root.h"

namespace tessera::engine {
namespace {

using Files = std::map<std::string, std::optional<std::string>>;

// A directory beside the configuration; the destructor removes it.
class ValidationDir {
 public:
  ValidationDir(const HostRoot* host, const std::string& config)
      : host_(*host), dir_(JoinPath(DirName(config), ".tessera-check")) {}
  ~ValidationDir() {
    for (const std::string& path : paths_) (void)!::unlink(path.c_str());
    for (const std::string& path : dirs_) (void)!::rmdir(path.c_str());
  }
  ValidationDir(const ValidationDir&) = delete;
  ValidationDir& operator=(const ValidationDir&) = delete;

  // Returns the host path of the copy.
  Result<std::string> Add(const std::string& name, const std::string& text) {
    const std::string path = JoinPath(dir_, name);
    ASSIGN_OR_RETURN(const std::vector<std::string> made, host_.MakeParents(path));
    for (const std::string& dir : made) {
      ASSIGN_OR_RETURN(std::string real, host_.Resolve(dir));
      dirs_.insert(dirs_.begin(), std::move(real));
    }
    FileState state;
    state.text = text;
    // The configuration of an engine may have passwords of registries.
    state.mode = 0600;
    RETURN_IF_ERROR(host_.Write(path, state));
    ASSIGN_OR_RETURN(std::string real, host_.Resolve(path));
    paths_.push_back(std::move(real));
    return path;
  }
  std::string PathOf(const std::string& name) const { return JoinPath(dir_, name); }

 private:
  const HostRoot& host_;
  const std::string dir_;
  std::vector<std::string> paths_;
  std::vector<std::string> dirs_;
};

// At most the last 600 bytes.
std::string Tail(const std::string& text) {
  const std::string_view trimmed = Trim(text);
  return std::string(trimmed.substr(trimmed.size() - std::min<size_t>(trimmed.size(), 600)));
}

Result<SubprocessResult> RunValidator(const HostRoot& host, const std::vector<std::string>& argv,
                                      Duration deadline) {
  ASSIGN_OR_RETURN(SubprocessResult result, RunOnHost(host, argv, deadline));
  if (result.exit_code == 0) return result;
  return Error(Code::kInvalidArgument, "{} rejects the resulting configuration: {}", argv[0],
               Tail(result.err + result.out));
}

bool KnowsRuntime(const Json& dump, const EngineSettings& settings) {
  const Json* plugins = dump.Find("plugins");
  if (plugins == nullptr || !plugins->is_object()) return false;
  for (const auto& [name, plugin] : plugins->members()) {
    const Json* path = FindPath(
        plugin, {"containerd", "runtimes", settings.runtime_name, "options", "BinaryName"});
    if (path == nullptr || !(*path == Json::String(settings.runtime_path))) continue;
    const Json* default_name = FindPath(plugin, {"containerd", "default_runtime_name"});
    if (!settings.set_as_default ||
        (default_name != nullptr && *default_name == Json::String(settings.runtime_name))) {
      return true;
    }
  }
  return false;
}

Status ValidateContainerd(const std::string& program, const HostRoot& host,
                          const EngineSettings& settings, const Plan& plan, const Files& files,
                          Duration deadline) {
  ValidationDir dir(&host, settings.config);
  Json imports = Json::MakeArray();
  for (const std::string& path : plan.imports) {
    const auto changed = files.find(path);
    if (changed == files.end()) {
      imports.Append(Json::String(path));
    } else if (changed->second) {
      const std::string name = fmt::format("import-{}.toml", imports.items().size());
      ASSIGN_OR_RETURN(const std::string copy, dir.Add(name, *changed->second));
      imports.Append(Json::String(copy));
    }
  }
  std::string text;
  if (const auto changed = files.find(settings.config); changed != files.end()) {
    text = changed->second.value_or("");
  } else {
    ASSIGN_OR_RETURN(const std::optional<FileState> main, host.Read(settings.config));
    if (main) text = main->text;
  }
  std::vector<TextEdit> edits;
  if (!imports.items().empty()) edits.push_back({EditKind::kSet, {"imports"}, imports});
  ASSIGN_OR_RETURN(const std::string main, EditText(Format::kToml, text, edits));
  ASSIGN_OR_RETURN(const std::string copy, dir.Add("config.toml", main));
  ASSIGN_OR_RETURN(const SubprocessResult result,
                   RunValidator(host, {program, "--config", copy, "config", "dump"}, deadline));
  ASSIGN_OR_RETURN(const Json dump, ParseToml(result.out).Annotate("config dump"));
  if (KnowsRuntime(dump, settings)) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "{} config dump lacks the runtime {} with {}: another file overrides it", program,
               settings.runtime_name, settings.runtime_path);
}

Status ValidateDocker(const std::string& program, const HostRoot& host,
                      const EngineSettings& settings, const Files& files, Duration deadline,
                      Validation* validation) {
  ValidationDir dir(&host, settings.config);
  const auto changed = files.find(settings.config);
  if (changed == files.end() || !changed->second) return Status::Ok();
  ASSIGN_OR_RETURN(const std::string copy, dir.Add("daemon.json", *changed->second));
  ASSIGN_OR_RETURN(const SubprocessResult result,
                   RunOnHost(host, {program, "--validate", "--config-file=" + copy}, deadline));
  if (result.exit_code == 0) return Status::Ok();
  if (result.err.find("unknown flag: --validate") != std::string::npos) {
    *validation = {false, program + " is older than 23 and cannot validate"};
    return Status::Ok();
  }
  return Error(Code::kInvalidArgument, "{} rejects the resulting configuration: {}", program,
               Tail(result.err + result.out));
}

Status ValidateCrio(const std::string& program, const HostRoot& host,
                    const EngineSettings& settings, const Files& files, Duration deadline) {
  ValidationDir dir(&host, settings.config);
  const std::string drop_in_dir = DirName(settings.drop_in);
  for (const std::string& path : host.Glob(drop_in_dir + "/*")) {
    if (files.contains(path)) continue;
    ASSIGN_OR_RETURN(const std::optional<FileState> other, host.Read(path));
    if (other) RETURN_IF_ERROR(dir.Add(BaseName(path), other->text).status());
  }
  for (const auto& [path, text] : files) {
    if (text && DirName(path) == drop_in_dir)
      RETURN_IF_ERROR(dir.Add(BaseName(path), *text).status());
  }
  return RunValidator(
             host, {program, "--config", settings.config, "--config-dir", dir.PathOf(""), "config"},
             deadline)
      .status();
}

}  // namespace

Result<Validation> ValidateByEngine(EngineKind engine, const HostRoot& host,
                                    const EngineSettings& settings, const Plan& plan,
                                    const Files& files, const std::string& program,
                                    Duration deadline) {
  const std::string name = engine == EngineKind::kContainerd ? "containerd"
                           : engine == EngineKind::kDocker   ? "dockerd"
                                                             : "crio";
  const std::string path = program.empty() ? FindHostProgram(host, name) : program;
  if (path.empty()) {
    return Validation{false, fmt::format("{} not found below {}/", name, host.root())};
  }
  Validation validation{true, path};
  Status status;
  switch (engine) {
    case EngineKind::kContainerd:
      status = ValidateContainerd(path, host, settings, plan, files, deadline);
      break;
    case EngineKind::kDocker:
      status = ValidateDocker(path, host, settings, files, deadline, &validation);
      break;
    case EngineKind::kCrio:
      status = ValidateCrio(path, host, settings, files, deadline);
      break;
  }
  // If the program cannot run here, the files are neither accepted nor rejected.
  const bool cannot_run =
      status.code() == Code::kPermissionDenied || status.code() == Code::kNotFound;
  if (cannot_run && program.empty()) return Validation{false, status.message()};
  if (!status.ok()) return status;
  return validation;
}

std::optional<Version> VersionOfProgram(EngineKind engine, const HostRoot& host,
                                        const std::string& program) {
  if (engine != EngineKind::kContainerd) return std::nullopt;
  const std::string path = program.empty() ? FindHostProgram(host, "containerd") : program;
  if (path.empty()) return std::nullopt;
  const auto result = RunOnHost(host, {path, "--version"}, std::chrono::seconds(10));
  if (!result.ok() || result->exit_code != 0) return std::nullopt;
  // containerd github.com/containerd/containerd/v2 2.2.9 <commit>
  for (const std::string_view word : SplitList(result->out, ' ')) {
    if (const auto version = ParseVersion(word)) return version;
  }
  return std::nullopt;
}

}  // namespace tessera::engine
