// SPDX-License-Identifier: Apache-2.0
// Debian packages, including those of NVIDIA's driver. They are downloaded once into the cache, and
// never installed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace tessera::testing {

struct Generation {
  const char* name;
  const char* version;
  const char* folder;  // of Debian's package, below usr/lib/<multiarch>/nvidia
};
inline constexpr Generation kGenerations[] = {{"470", "470.256.02", "tesla-470"},
                                              {"535", "535.309.01", "current"},
                                              {"550", "550.163.01", "current"}};

inline constexpr const char* kLibraryDir = "usr/lib/x86_64-linux-gnu";

// As root, NVIDIA's libraries create missing device nodes in /dev. The destructor removes those
// that the constructor has not found.
class NoNewDeviceNodes {
 public:
  NoNewDeviceNodes();
  ~NoNewDeviceNodes();

 private:
  std::set<std::string> before_;
};

// The folder into which the packages of a generation are unpacked. The error says why the packages
// cannot be downloaded; the test is then skipped.
Result<std::string> FetchDriverPackages(const Generation& generation);

// Downloads other packages. Returns the folder of the cache in which each of `items` has a folder
// of its name. tests/fetch-debs explains `items` and `component`, such as "main".
Result<std::string> FetchPackages(const std::string& folder, const std::string& component,
                                  const std::vector<std::string>& items);

}  // namespace tessera::testing
