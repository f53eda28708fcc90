// SPDX-License-Identifier: Apache-2.0
// Locates the driver's libraries below a root: in a directory of the distribution, in the target of
// links of update-alternatives (Debian: nvidia/current, nvidia/tesla-470), or through the root's
// linker cache. Included only in src/oci; other rooms use driver_root.h. Threads: one.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/machine.h"
#include "src/base/status.h"
#include "src/oci/rooted_dir.h"

namespace tessera::oci {

// The library directories of distributions, relative to a root.
inline constexpr std::array<std::string_view, 7> kLibraryDirs = {
    "usr/lib/" TESSERA_MULTIARCH,
    "usr/lib64",
    "usr/lib",
    "lib/" TESSERA_MULTIARCH,
    "lib64",
    "lib",
    "usr/local/lib",
};

struct DriverLocation {
  std::string version;  // 550.54.15
  // Relative to the root, without links, distinct; the directory of the found library is the first.
  std::vector<std::string> dirs;
};

class DriverSearch {
 public:
  explicit DriverSearch(const RootedDir& root) : root_(root) {}

  // The path of the file <stem>.so.1, for example with the stem "libcuda", relative to the root and
  // with links resolved. If no directory has this file, the newest <stem>.so.<version>. NOT_FOUND
  // names the searched directories.
  Result<std::string> FindLibrary(std::string_view stem) const;

  // Searches for libcuda, and for libnvidia-ml if there is no libcuda. NOT_FOUND as above, or if
  // neither file name has a version.
  Result<DriverLocation> FindLocation() const;

 private:
  // The path that FindLibrary resolves: a link, or the versioned file.
  Result<std::string> FindUnresolvedLibrary(std::string_view stem) const;
  // Follows links one by one to a name with a version.
  Result<DriverLocation> FollowToVersion(std::string path, std::string_view stem) const;
  std::vector<std::string> LibraryDirs() const;
  std::vector<std::string> LinkerCacheDirs() const;
  std::string FindNewestVersion(const std::vector<std::string>& dirs, std::string_view stem) const;

  const RootedDir& root_;
};

}  // namespace tessera::oci
