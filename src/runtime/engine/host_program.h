// SPDX-License-Identifier: Apache-2.0
// Runs programs of the host (containerd, systemctl), whose root may be mounted below a folder: in a
// child process with that folder as its root. Blocks. Threads: the program must have only one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/subprocess.h"
#include "src/runtime/engine/host_root.h"

namespace tessera::engine {

// The host path of a program from the usual folders, or empty.
std::string FindHostProgram(const HostRoot& host, std::string_view name);

// Like RunProgram. PERMISSION_DENIED: the process lacks the right to chroot.
Result<SubprocessResult> RunOnHost(const HostRoot& host, const std::vector<std::string>& argv,
                                   Duration deadline);

}  // namespace tessera::engine
