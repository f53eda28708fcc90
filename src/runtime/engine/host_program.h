// SPDX-License-Identifier: Apache-2.0
// Runs the host's own programs (containerd, systemctl) where its files may be mounted below a
// folder: in a child that has made that folder its root. Blocks. Threads: only in a program with
// one thread.
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

// As RunProgram. PERMISSION_DENIED: chroot is not allowed here.
Result<SubprocessResult> RunOnHost(const HostRoot& host, const std::vector<std::string>& argv,
                                   Duration deadline);

}  // namespace tessera::engine
