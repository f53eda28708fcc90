// SPDX-License-Identifier: Apache-2.0
// Finds the low-level runtime, runc or crun, and executes it. Never finds this program itself,
// whatever its name.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"

namespace tessera::runtime {

// The first of `names` that is an executable file. An absolute path is used as it is; a name is
// searched in `path_variable` (PATH; may be null), then in kUsualFolders. NOT_FOUND lists the names
// and folders.
Result<std::string> FindLowLevelRuntime(const std::vector<std::string>& names,
                                        const char* path_variable);

// Executes `path` with its name as argv[0], the other arguments and the environment. Returns only
// on an error.
Status ExecRuntime(const std::string& path, char** argv);

}  // namespace tessera::runtime
