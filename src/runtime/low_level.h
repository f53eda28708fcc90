// SPDX-License-Identifier: Apache-2.0
// Finds the runtime behind us, runc or crun, and becomes it. Never finds this program itself, under
// whatever name it is installed.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"

namespace tessera::runtime {

// The first of `names` that is an executable file: absolute paths as they are, names in the folders
// of `path_variable` (PATH; may be null) and then in the usual ones. NOT_FOUND lists what was
// tried.
Result<std::string> FindLowLevelRuntime(const std::vector<std::string>& names,
                                        const char* path_variable);

// Replaces this process; argv[0] becomes `path`, the rest and the environment stay. Returns only
// with an error.
Status Become(const std::string& path, char** argv);

}  // namespace tessera::runtime
