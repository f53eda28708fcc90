// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/install.h"

#include <sys/stat.h>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/oci/injection.h"
#include "src/runtime/engine/plan.h"

namespace tessera::engine {
namespace {

constexpr size_t kMaxProgramBytes = 256u << 20;

}  // namespace

Result<bool> InstallLibraries(const HostRoot& host, const std::string& from,
                              const std::string& to) {
  bool changed = false;
  for (const oci::LimiterLibrary& library : oci::kLimiterLibraries) {
    for (const std::string_view name : {library.file_for_dev, library.file_for_run}) {
      const std::string source = JoinPath(oci::LimiterDirBeside(from), name);
      if (!PathExists(source)) continue;
      const std::string destination = JoinPath(oci::LimiterDirBeside(to), name);
      ASSIGN_OR_RETURN(const bool copied, InstallProgram(host, source, destination));
      changed |= copied;
    }
  }
  return changed;
}

Result<bool> InstallProgram(const HostRoot& host, const std::string& from, const std::string& to) {
  FileState program;
  ASSIGN_OR_RETURN(program.text, ReadFile(from, kMaxProgramBytes).Annotate(from));
  program.mode = 0755;
  ASSIGN_OR_RETURN(const std::string real, host.Resolve(to));
  struct stat info {};
  if (::stat(real.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) {
      return Error(Code::kFailedPrecondition, "{} is not a regular file", to);
    }
    const auto existing = ReadFile(real, kMaxProgramBytes);
    if (existing.ok() && *existing == program.text && (info.st_mode & 07777) == program.mode)
      return false;
  }
  RETURN_IF_ERROR(host.MakeParents(to).status());
  RETURN_IF_ERROR(host.Write(to, program));
  return true;
}

Result<bool> WriteRuntimeSettings(const HostRoot& host, const std::string& path,
                                  const RuntimeSettings& settings) {
  ASSIGN_OR_RETURN(const std::optional<FileState> existing, host.Read(path));
  std::vector<TextEdit> edits;
  const auto set = [&](const char* key, const std::optional<std::string>& value) {
    if (value) edits.push_back({EditKind::kSet, {key}, Json::String(*value)});
  };
  set("driver-root", settings.driver_root);
  set("dev-root", settings.dev_root);
  set("grant-socket", settings.grant_socket);
  if (!settings.runtimes.empty()) {
    edits.push_back({EditKind::kSet, {"runtimes"}, Json::Strings(settings.runtimes)});
  }
  constexpr std::string_view kNewFile = "# Settings of tessera-runtime.\n";
  FileState state = existing.value_or(FileState{});
  Result<std::string> text = EditText(Format::kToml, existing ? existing->text : kNewFile, edits);
  if (!text.ok() && existing) {
    const std::string damaged_copy = path + ".damaged";
    Log(Severity::kWarning,
        "the settings of tessera-runtime do not parse: replaced by new settings",
        {{"error", text.status().Annotate(path).ToString()}, {"kept", damaged_copy}});
    RETURN_IF_ERROR(host.Write(damaged_copy, *existing));
    text = EditText(Format::kToml, kNewFile, edits);
  }
  ASSIGN_OR_RETURN(state.text, std::move(text).Annotate(path));
  if (existing && existing->text == state.text) return false;
  RETURN_IF_ERROR(host.MakeParents(path).status());
  RETURN_IF_ERROR(host.Write(path, state));
  return true;
}

}  // namespace tessera::engine
