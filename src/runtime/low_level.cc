// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/low_level.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::runtime {
namespace {

constexpr std::string_view kUsualFolders =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/tessera/bin";

bool IsOtherProgram(const std::string& path) {
  struct stat file, self;
  if (::stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return false;
  if (::access(path.c_str(), X_OK) != 0) return false;
  if (::stat("/proc/self/exe", &self) != 0) return true;
  return file.st_dev != self.st_dev || file.st_ino != self.st_ino;
}

std::string FindIn(std::string_view folders, const std::string& name) {
  for (const std::string_view folder : Split(folders, ':')) {
    if (!folder.starts_with('/')) continue;  // never what lies in a working folder
    std::string path = JoinPath(folder, name);
    if (IsOtherProgram(path)) return path;
  }
  return {};
}

}  // namespace

Result<std::string> FindLowLevelRuntime(const std::vector<std::string>& names,
                                        const char* path_variable) {
  std::string tried;
  for (const std::string& name : names) {
    tried += (tried.empty() ? "" : ", ") + name;
    if (name.starts_with('/')) {
      if (IsOtherProgram(name)) return name;
      continue;
    }
    for (const std::string_view folders :
         {std::string_view(path_variable != nullptr ? path_variable : ""), kUsualFolders}) {
      std::string path = FindIn(folders, name);
      if (!path.empty()) return path;
    }
  }
  return Error(Code::kNotFound,
               "no low-level runtime found: tried {} in PATH and {}; install runc or crun, or name "
               "one in \"runtimes\" of the configuration",
               tried, kUsualFolders);
}

Status Become(const std::string& path, char** argv) {
  argv[0] = const_cast<char*>(path.c_str());
  ::execv(path.c_str(), argv);
  return Status::FromErrno(path, errno);
}

}  // namespace tessera::runtime
