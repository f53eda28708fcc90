// SPDX-License-Identifier: Apache-2.0
// Where things stand in a limited container. The runtime puts them below /dev/tessera, or below
// /run/tessera where the container's /dev is not its own; the library is built once for each of the
// two.
#pragma once

#ifndef TESSERA_CONTAINER_DIR
#define TESSERA_CONTAINER_DIR "/dev/tessera"
#endif

namespace tessera::limiter {

// The dependency is written into the library when it is linked, see CMakeLists.txt.
inline constexpr char kRealCuda[] = TESSERA_CONTAINER_DIR "/real/libcuda";
inline constexpr char kRealNvml[] = TESSERA_CONTAINER_DIR "/real/libnvidia-ml";
inline constexpr char kLimitsPath[] = TESSERA_CONTAINER_DIR "/limits/limits";
inline constexpr char kUsagePath[] = TESSERA_CONTAINER_DIR "/usage/usage";

}  // namespace tessera::limiter
