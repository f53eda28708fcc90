// SPDX-License-Identifier: Apache-2.0
// What the files of the region (region.h) have in common: how a new one gets its header, and how
// one is mapped. For the limiter too, so with the C library's old functions alone. Threads: any.
// Functions return 0 or an errno.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace tessera::limiter {

// Gives an empty file its size, its header and `mode`, whatever the umask is.
int FillNewFile(int fd, size_t size, uint32_t magic, mode_t mode);

// Maps the first `size` bytes. EPROTO: the file is shorter, or its header is of another kind or
// version.
int MapFile(int fd, size_t size, uint32_t magic, bool writable, void** mapped);

}  // namespace tessera::limiter
