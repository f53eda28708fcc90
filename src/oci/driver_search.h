// SPDX-License-Identifier: Apache-2.0
// Where the driver's libraries lie below a root: in a folder of the distribution, in one that links
// of update-alternatives lead to (Debian: nvidia/current, nvidia/tesla-470), or where the root's
// linker cache says. Inside of the room; driver_root.h is for others. Threads: one.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/oci/rooted_dir.h"

namespace tessera::oci {

#if defined(__x86_64__)
#define TESSERA_MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define TESSERA_MULTIARCH "aarch64-linux-gnu"
#endif
// The library folders of distributions, below a root.
inline constexpr std::array<std::string_view, 7> kLibraryDirs = {
    "usr/lib/" TESSERA_MULTIARCH,
    "usr/lib64",
    "usr/lib",
    "lib/" TESSERA_MULTIARCH,
    "lib64",
    "lib",
    "usr/local/lib",
};

struct DriverPlace {
  std::string version;  // 550.54.15
  std::vector<std::string>
      dirs;  // below the root, without links, each once; the driver's own first
};

class DriverSearch {
 public:
  explicit DriverSearch(const RootedDir& root) : root_(root) {}

  // libcuda: the file that a program gets for libcuda.so.1, below the root and without links; where
  // no folder has that name, the newest libcuda.so.<version>. NOT_FOUND names the folders searched.
  Result<std::string> FindLibrary(std::string_view stem) const;

  // By libcuda, else by libnvidia-ml. NOT_FOUND as above, or where neither carries a version.
  Result<DriverPlace> FindPlace() const;

 private:
  // The name by which FindLibrary found it: still a link, or the versioned file.
  Result<std::string> FindName(std::string_view stem) const;
  // Follows links one by one to a name with a version.
  Result<DriverPlace> FollowToVersion(std::string path, std::string_view stem) const;
  std::vector<std::string> Folders() const;
  std::vector<std::string> FoldersOfCache() const;
  std::string Newest(const std::vector<std::string>& folders, std::string_view stem) const;

  const RootedDir& root_;
};

}  // namespace tessera::oci
