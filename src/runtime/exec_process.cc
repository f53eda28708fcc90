// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/exec_process.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/json.h"
#include "src/oci/config_document.h"
#include "src/oci/stage.h"

namespace tessera::runtime {
namespace {

constexpr std::string_view kVoid = "void";

Json* FindEntry(Json* env, std::string_view name) {
  for (Json& entry : env->items()) {
    if (entry.is_string() && entry.string_value().starts_with(fmt::format("{}=", name))) return &entry;
  }
  return nullptr;
}

std::string ValueOf(const Json& entry) {
  return entry.string_value().substr(entry.string_value().find('=') + 1);
}

void SetEntry(Json* env, std::string_view name, std::string_view value) {
  Json text = Json::String(fmt::format("{}={}", name, value));
  if (Json* entry = FindEntry(env, name)) {
    *entry = std::move(text);
  } else {
    env->Append(std::move(text));
  }
}

// Appends the driver's folders of the container's list to the process's.
void AppendDriverFolders(const oci::ConfigDocument& container, std::string_view name, Json* env) {
  const std::optional<std::string> wanted = container.Env(name);
  if (!wanted) return;
  const Json* entry = FindEntry(env, name);
  // Without a list of its own the process would have the container's.
  if (entry == nullptr) return SetEntry(env, name, *wanted);
  std::string list = ValueOf(*entry);
  const std::string old = list;
  const auto has = [&](std::string_view folder) {
    const auto parts = Split(list, ':');
    return std::find(parts.begin(), parts.end(), folder) != parts.end();
  };
  for (const std::string_view folder : Split(*wanted, ':')) {
    if (folder.find("/tessera/") == std::string_view::npos || has(folder)) continue;
    list = list.empty() ? std::string(folder) : fmt::format("{}:{}", list, folder);
  }
  if (list != old) SetEntry(env, name, list);
}

}  // namespace

std::string BundleOfExec(const char* log) { return log != nullptr ? DirName(log) : "."; }

bool IsGpuBundle(const std::string& bundle) { return PathExists(oci::Stage::PathIn(bundle)); }

Status EditExecProcess(const std::string& bundle, const std::string& file) {
  ASSIGN_OR_RETURN(const oci::ConfigDocument container, oci::ConfigDocument::Load(bundle));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  ASSIGN_OR_RETURN(Json process, ParseJson(text));
  if (!process.is_object()) return Error(Code::kInvalidArgument, "{} is no JSON object", file);
  ASSIGN_OR_RETURN(Json * env, process.ArrayAt("env"));
  AppendDriverFolders(container, "PATH", env);
  AppendDriverFolders(container, "LD_LIBRARY_PATH", env);
  const Json* visible = FindEntry(env, names::kEnvVisibleDevices);
  const std::optional<std::string> granted = container.Env(names::kEnvVisibleDevices);
  if (granted && (visible == nullptr || ValueOf(*visible) == kVoid)) {
    SetEntry(env, names::kEnvVisibleDevices, *granted);
  }
  // In place: the engine made the file for this call alone, and deletes it by its name.
  struct stat info;
  if (::stat(file.c_str(), &info) != 0) return Status::FromErrno(file, errno);
  return WriteFileAtomically(file, process.Serialize(), info.st_mode & 07777);
}

}  // namespace tessera::runtime
