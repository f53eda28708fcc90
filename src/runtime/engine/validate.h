// SPDX-License-Identifier: Apache-2.0
// Lets the engine's own program validate a configuration before it is written: in a temporary copy
// below the main file's directory. Threads: one.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/runtime/engine/host_root.h"
#include "src/runtime/engine/plan.h"

namespace tessera::engine {

struct Validation {
  bool validated = false;
  std::string note;  // the program, or why it did not validate
};

// `files` maps each path to its new text; nullopt removes the file. `program` is a host path; if
// empty, the usual directories are searched. INVALID_ARGUMENT: the engine rejects the files, with
// its message; FAILED_PRECONDITION: it accepts them but would not know the runtime.
Result<Validation> ValidateByEngine(EngineKind engine, const HostRoot& host,
                                    const EngineSettings& settings, const Plan& plan,
                                    const std::map<std::string, std::optional<std::string>>& files,
                                    const std::string& program, Duration deadline);

// The result of `containerd --version` on the host; nullopt if it is not installed. Always nullopt
// for other engines, whose files do not depend on the version.
std::optional<Version> VersionOfProgram(EngineKind engine, const HostRoot& host,
                                        const std::string& program);

}  // namespace tessera::engine
