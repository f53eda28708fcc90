// SPDX-License-Identifier: Apache-2.0
#include "src/oci/device_node.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <utility>

namespace tessera::oci {

Result<DeviceNode> ReadDeviceNode(const std::string& host_path, std::string container_path) {
  struct stat info;
  if (::lstat(host_path.c_str(), &info) != 0) return Status::FromErrno(host_path, errno);
  if (!S_ISCHR(info.st_mode)) {
    return Error(Code::kInvalidArgument, "{}: not a character device", host_path);
  }
  return DeviceNode{.path = std::move(container_path),
                    .type = 'c',
                    .major_number = major(info.st_rdev),
                    .minor_number = minor(info.st_rdev),
                    .mode = info.st_mode & 07777,
                    .uid = info.st_uid,
                    .gid = info.st_gid};
}

}  // namespace tessera::oci
