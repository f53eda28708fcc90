// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/low_level.h"

#include <unistd.h>

#include <cerrno>

#include "src/runtime/program_search.h"

namespace tessera::runtime {

Result<std::string> FindLowLevelRuntime(const std::vector<std::string>& names,
                                        const char* path_variable) {
  std::string tried;
  for (const std::string& name : names) {
    tried += (tried.empty() ? "" : ", ") + name;
    if (name.starts_with('/')) {
      if (IsOtherProgram(name.c_str())) return name;
      continue;
    }
    for (const std::string_view folders :
         {std::string_view(path_variable != nullptr ? path_variable : ""), kUsualFolders}) {
      ProgramPath path;
      if (FindProgram(folders, name, path)) return std::string(path);
    }
  }
  return Error(Code::kNotFound,
               "no low-level runtime found: tried {} in PATH and {}; install runc or crun, or name "
               "one in \"runtimes\" of the configuration",
               tried, kUsualFolders);
}

Status ExecRuntime(const std::string& path, char** argv) {
  argv[0] = const_cast<char*>(path.c_str());
  ::execv(path.c_str(), argv);
  return Status::FromErrno(path, errno);
}

}  // namespace tessera::runtime
