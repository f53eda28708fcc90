// SPDX-License-Identifier: Apache-2.0
// Finds the copies of the driver's libraries that a container already has: in its image, such as
// NVIDIA's cuda-compat packages, and in mounted directories and files. A program that loads such a
// copy bypasses the limiter, so the limiter is mounted over each copy.
//
// The search covers the directories that a dynamic linker searches: the directories of
// distributions, of the image's linker cache, of LD_LIBRARY_PATH, of cuda-compat and of NVIDIA's
// older runtimes. It also covers every file that is mounted under the name of such a library. Other
// copies are detected when they run (the agent reports processes that use a GPU without the
// limiter). Threads: one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/oci/config_document.h"
#include "src/oci/ld_cache.h"
#include "src/oci/rooted_dir.h"

namespace tessera::oci {

struct ImageLibrary {
  std::string path;    // in the container, without links
  std::string soname;  // libcuda.so.1, libnvidia-ml.so.1
  bool operator==(const ImageLibrary&) const = default;
};

inline constexpr size_t kMaxImageLibraries = 32;

// Returns distinct shared objects for this machine with one of `sonames`, at most
// kMaxImageLibraries. `root` and `cache` are the container's. Ignores mounts that other containers
// or the host can see (Bidirectional), because a mount there would appear outside of the container.
std::vector<ImageLibrary> FindImageLibraries(const ConfigDocument& document, const RootedDir& root,
                                             const LdCache& cache,
                                             const std::vector<std::string_view>& sonames);

}  // namespace tessera::oci
