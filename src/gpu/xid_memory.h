// SPDX-License-Identifier: Apache-2.0
// Which GPUs had an XID that needs a repair, in a file, so that a restart of the agent heals none.
// Forgotten when the node was booted: that resets every GPU. Private to this room.
//
// Threads: one. Writes on change only, some tens of bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera::gpu {

using UnrepairedXids = std::map<std::string, uint64_t>;  // code by UUID

class XidMemory {
 public:
  // `path` "": remembers nothing. `boot_id`: of the running kernel; "" where it is not known.
  XidMemory(std::string path, std::string boot_id);

  // What was saved since the last boot; nothing where the file is missing or damaged.
  const UnrepairedXids& xids() const { return xids_; }
  // A failure is logged, once for each change.
  void Save(const UnrepairedXids& xids);

 private:
  const std::string path_;
  const std::string boot_id_;
  UnrepairedXids xids_;
};

// Of the kernel that runs; "" where it does not say.
std::string BootId();

}  // namespace tessera::gpu
