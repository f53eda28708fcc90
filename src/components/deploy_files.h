// SPDX-License-Identifier: Apache-2.0
// Files of deploy/, compiled into the program.
#pragma once

#include <string_view>

namespace tessera::components {

struct DeployFile {
  std::string_view path;  // below deploy/
  std::string_view text;
};

// The last element has an empty path.
extern const DeployFile kDeployFiles[];

}  // namespace tessera::components
