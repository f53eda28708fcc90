// SPDX-License-Identifier: Apache-2.0
// A device node of the host, as it appears in a container. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "src/base/status.h"

namespace tessera::oci {

struct DeviceNode {
  std::string path;  // in the container
  char type = 'c';
  uint32_t major_number = 0;
  uint32_t minor_number = 0;
  mode_t mode = 0666;
  uint32_t uid = 0;
  uint32_t gid = 0;
  bool operator==(const DeviceNode&) const = default;
};

// Looks at `host_path`, without opening it (the first open initialises a GPU, which takes seconds).
// NOT_FOUND where it is missing; INVALID_ARGUMENT where it is no character device. Links are not
// followed.
Result<DeviceNode> LookAtDevice(const std::string& host_path, std::string container_path);

}  // namespace tessera::oci
