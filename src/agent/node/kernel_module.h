// SPDX-License-Identifier: Apache-2.0
// Loads a kernel module with the modprobe of a root file system, in which the module's files lie.
// Blocks for as long as the module takes; any thread. Needs CAP_SYS_MODULE and CAP_SYS_CHROOT.
#pragma once

#include <string>

#include "src/base/status.h"

namespace tessera::agent {

// NOT_FOUND: no modprobe below `root`. FAILED_PRECONDITION: it failed; its exit code and what to
// do. A module that is loaded already is no error.
Status LoadKernelModule(const std::string& root, const std::string& module);

}  // namespace tessera::agent
