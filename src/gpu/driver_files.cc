// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/driver_files.h"

#include "src/base/file.h"

namespace tessera::gpu {
namespace {

bool HasOwnProc(const std::string& driver_root) {
  return !driver_root.empty() && PathExists(JoinPath(driver_root, "proc/driver/nvidia"));
}

}  // namespace

std::string ProcRootOf(const std::string& driver_root, const std::string& fallback) {
  return HasOwnProc(driver_root) ? JoinPath(driver_root, "proc") : fallback;
}

std::string SysRootOf(const std::string& driver_root, const std::string& fallback) {
  const bool has_own_sys =
      HasOwnProc(driver_root) && PathExists(JoinPath(driver_root, "sys/bus/pci"));
  return has_own_sys ? JoinPath(driver_root, "sys") : fallback;
}

}  // namespace tessera::gpu
