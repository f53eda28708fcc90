// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/exec_process.h"

#include <optional>
#include <string_view>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/json.h"
#include "src/oci/config_document.h"
#include "src/oci/env_list.h"
#include "src/oci/injection.h"
#include "src/oci/stage.h"

namespace tessera::runtime {
namespace {

constexpr std::string_view kVoid = "void";

// Appends the driver's directories from the container's list to the process's list.
void AppendDriverDirs(const oci::EnvView& container, std::string_view name, oci::EnvList* env) {
  const std::optional<std::string> driver_dirs = container.Get(name);
  if (!driver_dirs) return;
  // A process without the variable gets the container's whole list.
  if (!env->Get(name)) return env->Set(name, *driver_dirs);
  for (const std::string_view dir : Split(*driver_dirs, ':')) {
    // Driver directories of a container are below /dev/tessera or /run/tessera (oci/tree.h).
    if (dir.find("/tessera/") != std::string_view::npos) env->AppendDir(name, dir);
  }
}

}  // namespace

std::string BundleOfExec(const char* log) { return log != nullptr ? DirName(log) : "."; }

bool IsGpuBundle(const std::string& bundle) { return PathExists(oci::Stage::PathIn(bundle)); }

Status EditExecProcess(const std::string& bundle, const std::string& file) {
  ASSIGN_OR_RETURN(const oci::ConfigDocument document, oci::ConfigDocument::Load(bundle));
  const oci::EnvView container = document.env();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  ASSIGN_OR_RETURN(Json process, ParseJson(text));
  if (!process.is_object()) return Error(Code::kInvalidArgument, "{} is not a JSON object", file);
  ASSIGN_OR_RETURN(Json * list, process.EnsureArray("env"));
  oci::EnvList env(list);
  oci::RemovePreloadsOfDriver(&env);
  for (const std::string_view name : oci::DirListVariables()) {
    AppendDriverDirs(container, name, &env);
  }
  const std::optional<std::string> granted = container.Get(names::kEnvVisibleDevices);
  if (granted && env.Get(names::kEnvVisibleDevices).value_or(std::string(kVoid)) == kVoid) {
    env.Set(names::kEnvVisibleDevices, *granted);
  }
  return oci::ReplaceFile(file, process.Serialize());
}

}  // namespace tessera::runtime
