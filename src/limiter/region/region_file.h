// SPDX-License-Identifier: Apache-2.0
// Creates and maps the files of the region (region.h), also files of another version, and describes
// locks on them. Calls only functions that old C libraries have, because it is part of the limiter.
// Threads: any. Functions return 0 or an errno.
#pragma once

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/limiter/region.h"

// Older C libraries do not declare these commands; the kernel has them since 3.15.
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

namespace tessera::limiter {

// A kind of file, as one version of the program reads and writes it. Tests set other versions.
struct Layout {
  uint32_t magic;
  size_t size;
  uint16_t version = kVersion;
  uint16_t oldest_reader = kOldestReader;
  uint16_t oldest_file = kOldestFile;
};
inline constexpr Layout kLimitsLayout{kLimitsMagic, sizeof(Limits)};
inline constexpr Layout kUsageLayout{kUsageMagic, sizeof(Usage)};

// Whether a program with this layout understands a file with this header.
constexpr bool CanRead(const Layout& layout, const Header& header) {
  if (header.magic != layout.magic || header.size < sizeof(Header)) return false;
  if (header.version < layout.version) return header.version >= layout.oldest_file;
  if (header.size < layout.size) return false;
  return header.version == layout.version || header.oldest_reader <= layout.version;
}

// A range to lock, to unlock or to test with F_OFD_SETLK and F_OFD_GETLK, which require l_pid 0
// (fcntl_getlk in fs/locks.c).
inline struct flock ByteRange(int64_t start, int64_t bytes = 1, short type = F_WRLCK) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = start;
  range.l_len = bytes;
  return range;
}

// Gives an empty file its size, its header and `mode`, independently of the umask.
int FillNewFile(int fd, const Layout& layout, mode_t mode);

// Maps as many bytes as the layout has. Fields that an older file lacks read as 0. A file that is
// mapped writable grows to the size of the layout. The file keeps the version in its header, which
// other readers check. EPROTO: the file is shorter than its header says, or CanRead is false.
int MapFile(int fd, const Layout& layout, bool writable, void** mapping);

}  // namespace tessera::limiter
