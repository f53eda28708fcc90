// SPDX-License-Identifier: Apache-2.0
// Writes a .tar.gz in memory: the ustar format, compressed by zlib. Only regular files. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::cli {

struct ArchiveFile {
  std::string name;  // "sysdump/objects/nodes.json"
  std::string text;
};

// Whether the format has room for the name: at most 100 characters after a slash, and at most 155
// before it.
bool FitsInArchive(std::string_view name);
// `mtime` in seconds since 1970. INVALID_ARGUMENT for a name that does not fit.
Result<std::string> TarGz(const std::vector<ArchiveFile>& files, int64_t mtime);

}  // namespace tessera::cli
