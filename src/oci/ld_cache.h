// SPDX-License-Identifier: Apache-2.0
// glibc's /etc/ld.so.cache, read and written: how a container's dynamic linker finds libraries that
// are not in its image, without running ldconfig and without writing to the image.
//
// Reads the format "glibc-ld.so.cache1.1", with or without the older "ld.so-1.7.0" in front; writes
// the former alone, which every glibc since 2.2 reads. The extension that lists glibc-hwcaps is
// kept. Pure: input may come from an image, so every offset is checked. Any thread.
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
  uint64_t hwcap = 0;  // with bit 62, the low half is an index into LdCache::hwcaps
  bool operator==(const LdCacheEntry&) const = default;
};

struct LdCache {
  std::vector<LdCacheEntry> entries;  // in the order of the file
  std::vector<std::string> hwcaps;    // names of glibc-hwcaps folders
};

inline constexpr size_t kMaxLdCacheSize = 16u << 20;

// The flags of libraries for this machine (64 bits), as ldconfig writes them.
int32_t NativeLdCacheFlags();

// INVALID_ARGUMENT: not a cache, or damaged; the message says where.
Result<LdCache> ParseLdCache(std::string_view data);

// `ours` in front: entries of `image` with a name and flags of `ours` go.
LdCache MergeLdCaches(std::vector<LdCacheEntry> ours, const LdCache& image);

// The file, sorted as glibc's binary search needs it.
std::string WriteLdCache(const LdCache& cache);

// glibc's _dl_cache_libcmp: like strcmp, but runs of digits compare as numbers.
int CompareLibraryNames(std::string_view a, std::string_view b);

}  // namespace tessera::oci
