// SPDX-License-Identifier: Apache-2.0
// Creates and maps the files of the region (region.h). The limiter uses it too, so it calls only
// functions that old C libraries have. Threads: any. Functions return 0 or an errno.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace tessera::limiter {

// Gives an empty file its size, its header and `mode`, whatever the umask is.
int FillNewFile(int fd, size_t size, uint32_t magic, mode_t mode);

// Maps the first `size` bytes. EPROTO: the file is shorter, or its magic number or version differs.
int MapFile(int fd, size_t size, uint32_t magic, bool writable, void** mapped);

}  // namespace tessera::limiter
