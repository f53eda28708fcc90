// SPDX-License-Identifier: Apache-2.0
// Creates and maps the files of the region (region.h), also files of another version. Calls only
// functions that old C libraries have, because it is part of the limiter. Threads: any. Functions
// return 0 or an errno.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/limiter/region.h"

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

// Gives an empty file its size, its header and `mode`, independently of the umask.
int FillNewFile(int fd, const Layout& layout, mode_t mode);

// Maps as many bytes as the layout has. Fields that an older file lacks read as 0. A file that is
// mapped writable grows to the size of the layout. The file keeps the version in its header, which
// other readers check. EPROTO: the file is shorter than its header says, or CanRead is false.
int MapFile(int fd, const Layout& layout, bool writable, void** mapping);

}  // namespace tessera::limiter
