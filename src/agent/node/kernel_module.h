// SPDX-License-Identifier: Apache-2.0
// Loads a kernel module with the modprobe of the root file system that holds the module's files.
// Blocks until the module is loaded; any thread. Needs CAP_SYS_MODULE and CAP_SYS_CHROOT.
#pragma once

#include <string>

#include "src/base/status.h"

namespace tessera::agent {

// OK also where the module is loaded already. NOT_FOUND: no modprobe below `root`.
// FAILED_PRECONDITION: modprobe failed; the message has its exit code and what to do.
Status LoadKernelModule(const std::string& root, const std::string& module);

}  // namespace tessera::agent
