// SPDX-License-Identifier: Apache-2.0
// Keeps the XIDs that need a repair in a file, so that a restart of the agent does not make their
// GPUs healthy. The XIDs of an earlier boot are ignored, because a reboot of the node resets every
// GPU. Included only in src/gpu.
//
// Threads: one. Writes some tens of bytes, only on changes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera::gpu {

using UnrepairedXids = std::map<std::string, uint64_t>;  // code by UUID

class UnrepairedXidFile {
 public:
  // `path` "": stores nothing. `boot_id` identifies the boot of the running kernel; "" if unknown.
  UnrepairedXidFile(std::string path, std::string boot_id);

  // The XIDs saved since the last boot; empty if the file is missing or damaged.
  const UnrepairedXids& xids() const { return xids_; }
  // Logs a failure once for each change.
  void Save(const UnrepairedXids& xids);

 private:
  const std::string path_;
  const std::string boot_id_;
  UnrepairedXids xids_;
};

// The id of the running kernel's boot; "" if unknown.
std::string BootId();

}  // namespace tessera::gpu
