// SPDX-License-Identifier: Apache-2.0
// Paths of libraries and files in a limited container. The runtime puts them below /dev/tessera, or
// below /run/tessera if the container has no /dev of its own. Each limiter library is built twice,
// once for each directory.
#pragma once

#ifndef TESSERA_CONTAINER_DIR
#define TESSERA_CONTAINER_DIR "/dev/tessera"
#endif

namespace tessera::limiter {

// CMakeLists.txt links the limiter libraries against the real libraries by these two paths.
inline constexpr char kRealCuda[] = TESSERA_CONTAINER_DIR "/real/libcuda";
inline constexpr char kRealNvml[] = TESSERA_CONTAINER_DIR "/real/libnvidia-ml";

inline constexpr char kLimitsPath[] = TESSERA_CONTAINER_DIR "/limits/limits";
inline constexpr char kUsagePath[] = TESSERA_CONTAINER_DIR "/usage/usage";

}  // namespace tessera::limiter
