// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/validate.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/toml.h"
#include "src/formats/toml_patcher.h"
#include "src/runtime/engine/host_program.h"

namespace tessera::engine {
namespace {

using Files = std::map<std::string, std::optional<std::string>>;

// A folder beside the configuration whose files go with the object.
class Stage {
 public:
  Stage(const HostRoot* host, const std::string& config)
      : host_(*host), folder_(JoinPath(DirName(config), ".tessera-check")) {}
  ~Stage() {
    for (const std::string& path : paths_) (void)!::unlink(path.c_str());
    for (const std::string& path : folders_) (void)!::rmdir(path.c_str());
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Returns the host path of the copy.
  Result<std::string> Add(const std::string& name, const std::string& text) {
    const std::string path = JoinPath(folder_, name);
    ASSIGN_OR_RETURN(const std::vector<std::string> made, host_.MakeParents(path));
    for (const std::string& folder : made) {
      ASSIGN_OR_RETURN(std::string real, host_.Resolve(folder));
      folders_.insert(folders_.begin(), std::move(real));
    }
    FileState state;
    state.text = text;
    state.mode = 0600;
    RETURN_IF_ERROR(host_.Write(path, state));
    ASSIGN_OR_RETURN(std::string real, host_.Resolve(path));
    paths_.push_back(std::move(real));
    return path;
  }
  std::string PathOf(const std::string& name) const { return JoinPath(folder_, name); }

 private:
  const HostRoot& host_;
  const std::string folder_;
  std::vector<std::string> paths_;
  std::vector<std::string> folders_;
};

std::string LastLines(const std::string& text) {
  const std::string_view trimmed = Trim(text);
  return std::string(trimmed.substr(trimmed.size() - std::min<size_t>(trimmed.size(), 600)));
}

Result<SubprocessResult> Judge(const HostRoot& host, const std::vector<std::string>& argv,
                               Duration deadline) {
  ASSIGN_OR_RETURN(SubprocessResult result, RunOnHost(host, argv, deadline));
  if (result.exit_code == 0) return result;
  return Error(Code::kInvalidArgument, "{} refuses the configuration that would result: {}",
               argv[0], LastLines(result.err + result.out));
}

bool KnowsRuntime(const Json& dump, const Wanted& wanted) {
  const Json* plugins = dump.Find("plugins");
  if (plugins == nullptr || !plugins->is_object()) return false;
  for (const auto& [name, plugin] : plugins->members()) {
    const Json* path =
        FindPath(plugin, {"containerd", "runtimes", wanted.runtime_name, "options", "BinaryName"});
    if (path == nullptr || !(*path == Json::String(wanted.runtime_path))) continue;
    const Json* used = FindPath(plugin, {"containerd", "default_runtime_name"});
    if (!wanted.set_as_default || (used != nullptr && *used == Json::String(wanted.runtime_name))) {
      return true;
    }
  }
  return false;
}

Status ValidateContainerd(const std::string& program, const HostRoot& host, const Wanted& wanted,
                          const Plan& plan, const Files& files, Duration deadline) {
  Stage stage(&host, wanted.config);
  Json imports = Json::MakeArray();
  for (const std::string& path : plan.imports) {
    const auto changed = files.find(path);
    if (changed == files.end()) {
      imports.Append(Json::String(path));
    } else if (changed->second) {
      const std::string name = fmt::format("import-{}.toml", imports.items().size());
      ASSIGN_OR_RETURN(const std::string copy, stage.Add(name, *changed->second));
      imports.Append(Json::String(copy));
    }
  }
  std::string text;
  if (const auto changed = files.find(wanted.config); changed != files.end()) {
    text = changed->second.value_or("");
  } else {
    ASSIGN_OR_RETURN(const std::optional<FileState> main, host.Read(wanted.config));
    if (main) text = main->text;
  }
  std::vector<TextEdit> edits;
  if (!imports.items().empty()) edits.push_back({EditKind::kSet, {"imports"}, imports});
  ASSIGN_OR_RETURN(const std::string main, PatchToml(text, edits));
  ASSIGN_OR_RETURN(const std::string copy, stage.Add("config.toml", main));
  ASSIGN_OR_RETURN(const SubprocessResult result,
                   Judge(host, {program, "--config", copy, "config", "dump"}, deadline));
  ASSIGN_OR_RETURN(const Json dump, ParseToml(result.out).Annotate("config dump"));
  if (KnowsRuntime(dump, wanted)) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "{} config dump does not show the runtime {} with {}: another file overrides it",
               program, wanted.runtime_name, wanted.runtime_path);
}

Status ValidateDocker(const std::string& program, const HostRoot& host, const Wanted& wanted,
                      const Files& files, Duration deadline, Validation* validation) {
  Stage stage(&host, wanted.config);
  const auto changed = files.find(wanted.config);
  if (changed == files.end() || !changed->second) return Status::Ok();
  ASSIGN_OR_RETURN(const std::string copy, stage.Add("daemon.json", *changed->second));
  ASSIGN_OR_RETURN(const SubprocessResult result,
                   RunOnHost(host, {program, "--validate", "--config-file=" + copy}, deadline));
  if (result.exit_code == 0) return Status::Ok();
  if (result.err.find("unknown flag: --validate") != std::string::npos) {
    *validation = {false, program + " is older than 23 and cannot validate"};
    return Status::Ok();
  }
  return Error(Code::kInvalidArgument, "{} refuses the configuration that would result: {}",
               program, LastLines(result.err + result.out));
}

Status ValidateCrio(const std::string& program, const HostRoot& host, const Wanted& wanted,
                    const Files& files, Duration deadline) {
  Stage stage(&host, wanted.config);
  const std::string folder = DirName(wanted.drop_in);
  for (const std::string& path : host.Glob(folder + "/*")) {
    if (files.contains(path)) continue;
    ASSIGN_OR_RETURN(const std::optional<FileState> other, host.Read(path));
    if (other) RETURN_IF_ERROR(stage.Add(BaseName(path), other->text).status());
  }
  for (const auto& [path, text] : files) {
    if (text && DirName(path) == folder) RETURN_IF_ERROR(stage.Add(BaseName(path), *text).status());
  }
  return Judge(host,
               {program, "--config", wanted.config, "--config-dir", stage.PathOf(""), "config"},
               deadline)
      .status();
}

}  // namespace

Result<Validation> ValidateByEngine(Engine engine, const HostRoot& host, const Wanted& wanted,
                                    const Plan& plan, const Files& files, const std::string& given,
                                    Duration deadline) {
  const std::string name = engine == Engine::kContainerd ? "containerd"
                           : engine == Engine::kDocker   ? "dockerd"
                                                         : "crio";
  const std::string program = given.empty() ? FindHostProgram(host, name) : given;
  if (program.empty()) {
    return Validation{false, fmt::format("there is no {} below {}/", name, host.root())};
  }
  Validation validation{true, program};
  Status status;
  switch (engine) {
    case Engine::kContainerd:
      status = ValidateContainerd(program, host, wanted, plan, files, deadline);
      break;
    case Engine::kDocker:
      status = ValidateDocker(program, host, wanted, files, deadline, &validation);
      break;
    case Engine::kCrio:
      status = ValidateCrio(program, host, wanted, files, deadline);
      break;
  }
  // A program that cannot run here neither accepts nor rejects the files.
  const bool cannot_run =
      status.code() == Code::kPermissionDenied || status.code() == Code::kNotFound;
  if (cannot_run && given.empty()) return Validation{false, status.message()};
  if (!status.ok()) return status;
  return validation;
}

std::optional<Version> VersionOfProgram(Engine engine, const HostRoot& host,
                                        const std::string& given) {
  if (engine != Engine::kContainerd) return std::nullopt;
  const std::string program = given.empty() ? FindHostProgram(host, "containerd") : given;
  if (program.empty()) return std::nullopt;
  const auto result = RunOnHost(host, {program, "--version"}, std::chrono::seconds(10));
  if (!result.ok() || result->exit_code != 0) return std::nullopt;
  // containerd github.com/containerd/containerd/v2 2.2.9 <commit>
  for (const std::string_view word : SplitList(result->out, ' ')) {
    if (const auto version = ParseVersion(word)) return version;
  }
  return std::nullopt;
}

}  // namespace tessera::engine
