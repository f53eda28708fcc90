// SPDX-License-Identifier: Apache-2.0
// Resolves paths by the kernel inside a folder, so that no link and no rename leads outside.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/file.h"

namespace tessera {

// openat2(2) with O_CLOEXEC, retried if a rename interferes. `resolve`: RESOLVE_* of
// <linux/openat2.h>. On error the result is invalid and errno is set: ENOSYS before Linux 5.6.
Fd OpenAt2(int folder, const std::string& path, uint64_t flags, uint64_t resolve);

// The kernel's path of an open file.
Result<std::string> PathOfFd(int fd);

}  // namespace tessera
