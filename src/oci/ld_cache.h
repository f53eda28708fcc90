// SPDX-License-Identifier: Apache-2.0
// Reads and writes glibc's /etc/ld.so.cache, so that a container's dynamic linker finds libraries
// outside of its image, without ldconfig.
//
// Reads the format "glibc-ld.so.cache1.1", optionally preceded by the older "ld.so-1.7.0"; writes
// only the newer one, which every glibc since 2.2 reads. Keeps the extension that lists
// glibc-hwcaps. Pure: input may come from an image, so every offset is checked. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::oci {

struct LdCacheEntry {
  std::string name;  // libcuda.so.1
  std::string path;
  // Kind of library: 0x0303 x86-64, 0x0a03 aarch64, 0x0003 i386; glibc's ldconfig.h.
  int32_t flags = 0;
  uint32_t os_version = 0;
  uint64_t hwcap = 0;  // with bit 62 the low half is an index into LdCache::hwcaps
  bool operator==(const LdCacheEntry&) const = default;
};

struct LdCache {
  std::vector<LdCacheEntry> entries;  // in the order of the file
  std::vector<std::string> hwcaps;    // names of glibc-hwcaps directories
};

inline constexpr size_t kMaxLdCacheSize = 16u << 20;

// The flags of libraries for this machine (64 bits), as ldconfig writes them.
int32_t NativeLdCacheFlags();

// INVALID_ARGUMENT, with the position: not a cache, or damaged.
Result<LdCache> ParseLdCache(std::string_view data);

// `driver_entries` first, then the entries of `image` whose name and flags no driver entry has.
LdCache MergeLdCaches(std::vector<LdCacheEntry> driver_entries, const LdCache& image);

// The file content, sorted for glibc's binary search.
std::string WriteLdCache(const LdCache& cache);

// glibc's _dl_cache_libcmp: like strcmp, but digit sequences compare as numbers.
int CompareLibraryNames(std::string_view a, std::string_view b);

}  // namespace tessera::oci
