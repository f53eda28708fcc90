// SPDX-License-Identifier: Apache-2.0
// Lets the engine's own program judge a configuration before it is put in place: a copy is written
// aside, below the main file's folder, and removed again. Threads: one.
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
  bool done = false;
  std::string note;  // why not, or by what
};

// `files`: path → text as it shall be; nothing for a file that shall not exist. `program` is a host
// path, empty for the usual one. INVALID_ARGUMENT: the engine refuses, in its words;
// FAILED_PRECONDITION: it accepts, but the runtime would not be there.
Result<Validation> ValidateByEngine(Engine engine, const HostRoot& host, const Wanted& wanted,
                                    const Plan& plan,
                                    const std::map<std::string, std::optional<std::string>>& files,
                                    const std::string& program, Duration deadline);

// What `containerd --version` says on the host; nothing where there is none, or for other engines,
// whose files do not depend on it.
std::optional<Version> VersionOfProgram(Engine engine, const HostRoot& host,
                                        const std::string& program);

}  // namespace tessera::engine
