// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/program_search.h"

#include <unistd.h>

#include "src/runtime/raw_calls.h"

namespace tessera::runtime {
namespace {

// Writes "directory/name" with its terminating zero to `path`. False if it does not fit.
bool Join(std::string_view dir, std::string_view name, ProgramPath& path) {
  if (dir.size() + name.size() + 2 > sizeof(path)) return false;
  char* to = path;
  for (const char c : dir) *to++ = c;
  if (to[-1] != '/') *to++ = '/';
  for (const char c : name) *to++ = c;
  *to = '\0';
  return true;
}

}  // namespace

bool IsOtherProgram(const char* path) {
  struct stat file, self;
  if (raw::Stat(path, &file) < 0 || !S_ISREG(file.st_mode)) return false;
  if (raw::Access(path, X_OK) < 0) return false;
  // Compares inodes, because this program may also be installed under the name runc, and would then
  // execute itself forever. Without /proc this cannot be detected.
  if (raw::Stat("/proc/self/exe", &self) < 0) return true;
  return file.st_dev != self.st_dev || file.st_ino != self.st_ino;
}

bool FindProgram(std::string_view dirs, std::string_view name, ProgramPath& path) {
  size_t start = 0;
  for (size_t end = 0; end <= dirs.size(); ++end) {
    if (end < dirs.size() && dirs[end] != ':') continue;
    const std::string_view dir(dirs.data() + start, end - start);
    start = end + 1;
    // A relative directory would execute a file from the working directory.
    if (dir.empty() || dir[0] != '/') continue;
    if (Join(dir, name, path) && IsOtherProgram(path)) return true;
  }
  return false;
}

}  // namespace tessera::runtime
