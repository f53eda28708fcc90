// SPDX-License-Identifier: Apache-2.0
// The copies of the driver's libraries that a container has without us: in its image, such as
// NVIDIA's cuda-compat packages, and in folders and files that are mounted into it. A program that
// finds one of them gets past the limiter, so the limiter is mounted over each.
//
// Looked at are the folders in which a dynamic linker looks: those of distributions, of the image's
// linker cache and of LD_LIBRARY_PATH, those of cuda-compat and of NVIDIA's older runtimes, and
// every file that is mounted under such a name. A copy elsewhere is found when it runs (the agent
// reports processes that use a GPU without the limiter). Threads: one.
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

// Shared objects for this machine with one of `sonames`, each once, at most kMostImageLibraries.
// `root` and `cache` are the container's. Mounts that other containers or the host would see too
// (Bidirectional) are left as they are.
inline constexpr size_t kMostImageLibraries = 32;
std::vector<ImageLibrary> FindImageLibraries(const ConfigDocument& document, const RootedDir& root,
                                             const LdCache& cache,
                                             const std::vector<std::string_view>& sonames);

}  // namespace tessera::oci
