// SPDX-License-Identifier: Apache-2.0
// Paths resolved by the kernel below a folder, so that no link and no rename leads out of it.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/file.h"

namespace tessera {

// openat2(2) with O_CLOEXEC, retried while something is renamed under it. `resolve`: RESOLVE_* of
// <linux/openat2.h>. Not valid on error, which errno has: ENOSYS before Linux 5.6.
Fd OpenAt2(int folder, const std::string& path, uint64_t flags, uint64_t resolve);

// The path by which the kernel knows an open file.
Result<std::string> PathOfFd(int fd);

}  // namespace tessera
