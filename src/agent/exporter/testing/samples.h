// SPDX-License-Identifier: Apache-2.0
// For tests: containers of namespace "ml" that hold GPUs, and their use.
#pragma once

#include <string>

#include "src/agent/grants/holdings.h"
#include "src/agent/limits/container_usage.h"

namespace tessera::agent {

// The pod's UID is "uid-<pod>". With pod "" the owner of the GPU is unknown.
inline HeldContainer Held(const std::string& pod, const std::string& uuid, MilliGpu compute,
                          const std::string& container = "main") {
  return {.holder = {Uid("uid-" + pod), "ml", pod, container},
          .shares = {{uuid, compute, GiB(1)}},
          .container_id = ""};
}

// A share of 0.3 GPUs, held by container "main".
inline ContainerGpuUse UseBy(const std::string& pod, const std::string& uuid) {
  return {.holder = {Uid("uid-" + pod), "ml", pod, "main"}, .uuid = uuid, .compute = MilliGpu(300)};
}

}  // namespace tessera::agent
