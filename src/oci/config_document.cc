// SPDX-License-Identifier: Apache-2.0
#include "src/oci/config_document.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::oci {
namespace {

std::string TextOf(const Json* json) {
  return json != nullptr && json->is_string() ? json->string_value() : std::string();
}

Result<Json*> MakePath(Json* json, std::initializer_list<std::string_view> path) {
  for (const std::string_view key : path) {
    ASSIGN_OR_RETURN(json, json->EnsureObject(key));
  }
  return json;
}

Json MountToJson(const Mount& mount) {
  Json json = Json::MakeObject();
  json.Set("destination", Json::String(mount.destination));
  if (!mount.type.empty()) json.Set("type", Json::String(mount.type));
  json.Set("source", Json::String(mount.source));
  json.Set("options", Json::Strings(mount.options));
  return json;
}

Json DeviceToJson(const DeviceNode& node) {
  Json json = Json::MakeObject();
  json.Set("path", Json::String(node.path));
  json.Set("type", Json::String(std::string_view(&node.type, 1)));
  json.Set("major", Json::Int(node.major_number));
  json.Set("minor", Json::Int(node.minor_number));
  json.Set("fileMode", Json::Int(node.mode));
  json.Set("uid", Json::Int(node.uid));
  json.Set("gid", Json::Int(node.gid));
  return json;
}

Json RuleToJson(const DeviceNode& node, bool allow, std::string_view access) {
  Json json = Json::MakeObject();
  json.Set("allow", Json::Bool(allow));
  json.Set("type", Json::String(std::string_view(&node.type, 1)));
  json.Set("major", Json::Int(node.major_number));
  json.Set("minor", Json::Int(node.minor_number));
  json.Set("access", Json::String(access));
  return json;
}

// The kernel's constant major number of /dev/nvidia<number> and /dev/nvidiactl.
constexpr int64_t kGpuMajor = 195;

// What a rule lets the cgroup open.
enum class RuleScope { kOther, kEveryGpu, kEveryCharacterDevice };

RuleScope ScopeOf(const Json& rule) {
  const Json* allow = rule.Find("allow");
  if (allow == nullptr || *allow != Json::Bool(true)) return RuleScope::kOther;
  // A missing type is "a" (all). Then runc, and the kernel with cgroup v1, ignore numbers and
  // access.
  const std::string type = TextOf(rule.Find("type"));
  if (type.empty() || type == "a") return RuleScope::kEveryCharacterDevice;
  // runc and crun read a missing number and -1 as every number.
  const auto number_of = [&](std::string_view key) {
    const Json* number = rule.Find(key);
    return number == nullptr ? -1 : number->ToInt().value_or(-1);
  };
  const bool opens = TextOf(rule.Find("access")).find_first_of("rw") != std::string::npos;
  if (type != "c" || !opens || number_of("minor") != -1) return RuleScope::kOther;
  const int64_t major = number_of("major");
  if (major == kGpuMajor) return RuleScope::kEveryGpu;
  return major == -1 ? RuleScope::kEveryCharacterDevice : RuleScope::kOther;
}

}  // namespace

std::string CleanPath(std::string_view path) {
  std::vector<std::string_view> parts;
  for (const std::string_view part : Split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
    } else if (!parts.empty()) {
      parts.pop_back();
    }
  }
  std::string clean;
  for (const std::string_view part : parts) clean.append("/").append(part);
  return clean.empty() ? "/" : clean;
}

bool IsBelow(std::string_view path, std::string_view dir) {
  if (dir == "/" || path == dir) return true;
  return path.starts_with(dir) && path[dir.size()] == '/';
}

const Mount* FindMountOver(const std::vector<Mount>& mounts, std::string_view path) {
  const auto over = std::find_if(mounts.rbegin(), mounts.rend(), [&](const Mount& mount) {
    const std::string destination = CleanPath(mount.destination);
    return destination != "/" && IsBelow(path, destination);
  });
  return over == mounts.rend() ? nullptr : &*over;
}

Result<ConfigDocument> ConfigDocument::Load(const std::string& bundle, const std::string& file) {
  char absolute[PATH_MAX];
  if (::realpath(bundle.c_str(), absolute) == nullptr) {
    return Status::FromErrno("bundle " + bundle, errno);
  }
  const std::string path = file.starts_with('/') ? file : JoinPath(absolute, file);
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigSize));
  Result<ConfigDocument> document = Parse(text, absolute);
  if (!document.ok()) return document.status().Annotate(path);
  document->path_ = path;
  return document;
}

Result<ConfigDocument> ConfigDocument::Parse(std::string_view text, std::string bundle) {
  ASSIGN_OR_RETURN(Json json, ParseJson(text, {.max_bytes = kMaxConfigSize, .max_depth = 64}));
  if (!json.is_object()) {
    return Error(Code::kInvalidArgument, "must be an object, is {}", KindName(json.kind()));
  }
  std::string path = JoinPath(bundle, "config.json");
  return ConfigDocument(std::move(json), std::move(bundle), std::move(path));
}

Result<std::string> ConfigDocument::RootPath() const {
  const std::string path = TextOf(FindPath(json_, {"root", "path"}));
  if (path.empty()) return Error(Code::kInvalidArgument, "{}: root.path is missing", path_);
  return path.starts_with('/') ? path : JoinPath(bundle_, path);
}

bool ConfigDocument::IsRootReadOnly() const {
  const Json* readonly = FindPath(json_, {"root", "readonly"});
  return readonly != nullptr && *readonly == Json::Bool(true);
}

std::optional<std::string> ConfigDocument::Annotation(std::string_view name) const {
  const Json* value = FindPath(json_, {"annotations", name});
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->string_value();
}

bool ConfigDocument::HasAnnotationWithPrefix(std::string_view prefix,
                                             std::initializer_list<std::string_view> except) const {
  const Json* all = json_.Find("annotations");
  if (all == nullptr || !all->is_object()) return false;
  return std::any_of(all->members().begin(), all->members().end(), [&](const Json::Member& member) {
    return member.first.starts_with(prefix) &&
           std::find(except.begin(), except.end(), member.first) == except.end();
  });
}

std::string ConfigDocument::CgroupsPath() const {
  return TextOf(FindPath(json_, {"linux", "cgroupsPath"}));
}

std::string ConfigDocument::MountLabel() const {
  return TextOf(FindPath(json_, {"linux", "mountLabel"}));
}

EnvView ConfigDocument::env() const { return EnvView(FindPath(json_, {"process", "env"})); }

Result<EnvList> ConfigDocument::MutableEnv() {
  ASSIGN_OR_RETURN(Json * process, json_.EnsureObject("process"));
  ASSIGN_OR_RETURN(Json * list, process->EnsureArray("env"));
  return EnvList(list);
}

std::vector<Mount> ConfigDocument::Mounts() const {
  std::vector<Mount> mounts;
  const Json* list = json_.Find("mounts");
  if (list == nullptr || !list->is_array()) return mounts;
  for (const Json& item : list->items()) {
    Mount mount{.destination = TextOf(item.Find("destination")),
                .type = TextOf(item.Find("type")),
                .source = TextOf(item.Find("source"))};
    const Json* options = item.Find("options");
    if (options != nullptr && options->is_array()) {
      for (const Json& option : options->items()) mount.options.push_back(TextOf(&option));
    }
    if (!mount.destination.empty()) mounts.push_back(std::move(mount));
  }
  return mounts;
}

Status ConfigDocument::AddMount(const Mount& mount) {
  ASSIGN_OR_RETURN(Json * list, json_.EnsureArray("mounts"));
  const std::string destination = CleanPath(mount.destination);
  std::erase_if(list->items(), [&](const Json& item) {
    const std::string existing = TextOf(item.Find("destination"));
    // CleanPath adds at most the leading slash, so a shorter text cannot be equal.
    return !existing.empty() && existing.size() + 1 >= destination.size() &&
           CleanPath(existing) == destination;
  });
  list->Append(MountToJson(mount));
  return Status::Ok();
}

void ConfigDocument::EraseMountsFrom(std::string_view dir) {
  Json* list = json_.Find("mounts");
  if (list == nullptr || !list->is_array()) return;
  std::erase_if(list->items(), [&](const Json& item) {
    const std::string source = TextOf(item.Find("source"));
    return source.starts_with('/') && IsBelow(CleanPath(source), dir);
  });
}

void ConfigDocument::EraseGpuNodes() {
  Json* linux_part = json_.Find("linux");
  Json* devices = linux_part != nullptr ? linux_part->Find("devices") : nullptr;
  if (devices == nullptr || !devices->is_array()) return;
  constexpr std::string_view kPrefix = "/dev/nvidia";
  std::erase_if(devices->items(), [&](const Json& item) {
    const std::string path = CleanPath(TextOf(item.Find("path")));
    return path.starts_with(kPrefix) && ParseInt(path.substr(kPrefix.size())).ok();
  });
}

void ConfigDocument::EraseGpuRules() {
  Json* linux_part = json_.Find("linux");
  Json* resources = linux_part != nullptr ? linux_part->Find("resources") : nullptr;
  Json* rules = resources != nullptr ? resources->Find("devices") : nullptr;
  if (rules == nullptr || !rules->is_array()) return;
  std::erase_if(rules->items(),
                [](const Json& rule) { return ScopeOf(rule) == RuleScope::kEveryGpu; });
}

Status ConfigDocument::AddDevice(const DeviceNode& node) {
  ASSIGN_OR_RETURN(Json * linux_part, json_.EnsureObject("linux"));
  ASSIGN_OR_RETURN(Json * devices, linux_part->EnsureArray("devices"));
  std::erase_if(devices->items(), [&](const Json& item) {
    const std::string existing = TextOf(item.Find("path"));
    return !existing.empty() && CleanPath(existing) == node.path;
  });
  devices->Append(DeviceToJson(node));
  return Status::Ok();
}

Status ConfigDocument::AddRule(Json rule) {
  ASSIGN_OR_RETURN(Json * resources, MakePath(&json_, {"linux", "resources"}));
  ASSIGN_OR_RETURN(Json * rules, resources->EnsureArray("devices"));
  // runc and crun apply the rules in order and a later rule overrides earlier rules, so the new
  // rule comes after the rule for all devices.
  std::erase(rules->items(), rule);
  rules->Append(std::move(rule));
  return Status::Ok();
}

// The rule has no "m", because runc's own rules allow mknod of every device ("c *:* m").
Status ConfigDocument::AllowDevice(const DeviceNode& node) {
  return AddRule(RuleToJson(node, /*allow=*/true, "rw"));
}

Status ConfigDocument::DenyDevice(const DeviceNode& node) {
  return AddRule(RuleToJson(node, /*allow=*/false, "rwm"));
}

bool ConfigDocument::AllowsEveryGpu() const {
  const Json* rules = FindPath(json_, {"linux", "resources", "devices"});
  if (rules == nullptr || !rules->is_array()) return false;
  return std::ranges::any_of(rules->items(),
                             [](const Json& rule) { return ScopeOf(rule) != RuleScope::kOther; });
}

Status ConfigDocument::AddGroup(uint32_t gid) {
  ASSIGN_OR_RETURN(Json * user, MakePath(&json_, {"process", "user"}));
  ASSIGN_OR_RETURN(Json * groups, user->EnsureArray("additionalGids"));
  const Json group = Json::Int(gid);
  const auto& items = groups->items();
  if (std::find(items.begin(), items.end(), group) == items.end()) groups->Append(group);
  return Status::Ok();
}

Status ConfigDocument::SetUnified(std::string_view file, std::string_view value) {
  ASSIGN_OR_RETURN(Json * unified, MakePath(&json_, {"linux", "resources", "unified"}));
  if (unified->Find(file) == nullptr) unified->Set(file, Json::String(std::string(value)));
  return Status::Ok();
}

Status ConfigDocument::Save() const { return ReplaceFile(path_, json_.Serialize()); }

Status ReplaceFile(const std::string& path, std::string_view data) {
  struct stat old_info;
  if (::stat(path.c_str(), &old_info) != 0) return Status::FromErrno(path, errno);
  // Not synced to disk: engines keep bundles below /run, which is empty after a reboot.
  std::string temporary = path + ".XXXXXX";
  const Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(path, errno);
  Status status = WriteFd(fd.get(), data);
  // fchown clears the set-ID bits, so fchmod follows it.
  if (status.ok() && (::fchown(fd.get(), old_info.st_uid, old_info.st_gid) != 0 ||
                      ::fchmod(fd.get(), old_info.st_mode & 07777) != 0 ||
                      ::rename(temporary.c_str(), path.c_str()) != 0)) {
    status = Status::FromErrno("replace", errno);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status.Annotate(path);
}

}  // namespace tessera::oci
