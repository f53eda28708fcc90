// SPDX-License-Identifier: Apache-2.0
// Packages of Debian, NVIDIA's driver among them, downloaded once into the cache and never
// installed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace tessera::testing {

struct Generation {
  const char* name;
  const char* version;
  const char* folder;  // Debian's, below usr/lib/<multiarch>/nvidia
};
inline constexpr Generation kGenerations[] = {{"470", "470.256.02", "tesla-470"},
                                              {"535", "535.309.01", "current"},
                                              {"550", "550.163.01", "current"}};

inline constexpr const char* kLibraryDir = "usr/lib/x86_64-linux-gnu";

// NVIDIA's libraries make missing device nodes in /dev where they run as root. Removes those that
// were not there before.
class NoNewDeviceNodes {
 public:
  NoNewDeviceNodes();
  ~NoNewDeviceNodes();

 private:
  std::set<std::string> before_;
};

// The folder into which the packages of a generation are unpacked. The error has the reason why
// they cannot be downloaded; a test then skips.
Result<std::string> FetchDriverPackages(const Generation& generation);

// Downloads other packages. Returns the folder of the cache in which each of `items` has a folder
// of its name. tests/fetch-debs explains items and `component` ("main").
Result<std::string> FetchPackages(const std::string& folder, const std::string& component,
                                  const std::vector<std::string>& items);

}  // namespace tessera::testing
