// SPDX-License-Identifier: Apache-2.0
// An OCI runtime that adds GPUs and leaves everything else to runc or crun: `create` and `run` edit
// the bundle first; every verb then executes the low-level runtime with the same arguments and
// environment. Keeps no state. Threads: one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/runtime/command_line.h"

namespace tessera::runtime {

// Ends by executing the low-level runtime. Returns only after an error and for Tessera's own verbs
// (explain, configure), with the exit code.
int RuntimeMain(int argc, char** argv);

// The first of `names` that is an executable file and not this program. An absolute path is used as
// it is; a name is searched in `path_variable` (PATH; may be null), then in kUsualDirs
// (program_search.h). NOT_FOUND lists the names and directories.
Result<std::string> FindLowLevelRuntime(const std::vector<std::string>& names,
                                        const char* path_variable);

// One line of the log that the engine reads, in runc's format; `timestamp` is in RFC 3339.
std::string LogLine(bool json, std::string_view level, std::string_view message,
                    std::string_view timestamp);

}  // namespace tessera::runtime
