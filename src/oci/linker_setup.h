// SPDX-License-Identifier: Apache-2.0
// How the dynamic linker of one container finds the driver's libraries, which lie in a folder that
// no image knows. glibc finds them through /etc/ld.so.cache; that file must stay replaceable,
// because ldconfig, which package managers run, renames a new one over it. Threads: one.
//
//   writable root, glibc image   /etc/ld.so.cache and /etc/ld.so.conf.d/00-tessera.conf are written
//                                into the container's layer: ldconfig writes the same entries again
//   read-only root, with cache   the merged cache is mounted over the image's; ldconfig cannot
//                                write there
//   else (musl, no cache)        LD_LIBRARY_PATH
//
// The two files name libraries and hold none, and name none where the driver's folder is missing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/oci/ld_cache.h"
#include "src/oci/rooted_dir.h"

namespace tessera::oci {

struct LinkerSetup {
  enum class Way { kWrite, kMount, kEnvironment };
  Way way = Way::kEnvironment;
  LdCache cache;    // the image's, without entries of an earlier start; not for kEnvironment
  std::string why;  // for people: why kEnvironment
};

// Reads the root file system of a container; changes nothing. An image without a usable cache, or
// in which ldconfig would not read our file, is no error: it gives kEnvironment.
LinkerSetup FindLinkerSetup(const RootedDir& root, bool read_only);

// Writes `cache`, and a file that names `library_dir` for ldconfig, into the root file system. No
// link in it is followed. A cache that is as it should be is not written.
Status WriteLinkerFiles(const RootedDir& root, std::string_view library_dir,
                        std::string_view cache);

}  // namespace tessera::oci
