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

// Reads the attributes of `host_path` without opening it, because the first open initializes a GPU,
// which takes seconds. NOT_FOUND if it is missing; INVALID_ARGUMENT if it is not a character
// device. Does not follow links.
Result<DeviceNode> ReadDeviceNode(const std::string& host_path, std::string container_path);

}  // namespace tessera::oci
