// SPDX-License-Identifier: Apache-2.0
// A part of a file in memory, for reading, although another program may truncate the file at any
// time. The kernel answers an access beyond the end of a mapped file with SIGBUS, which ends a
// program. During Read a handler puts a page of zeros there instead. All other SIGBUS go where they
// went before. For files whose writer cannot be trusted, and that are read too often for pread.
//
// Threads: one for each mapping; several mappings may be read at once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace tessera::agent {

class GuardedMapping {
 public:
  GuardedMapping() = default;
  // Maps `size` bytes at `offset` of the file; not valid if the kernel does not.
  GuardedMapping(int fd, off_t offset, size_t size);
  ~GuardedMapping();
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;

  bool valid() const { return data_ != nullptr; }

  // Calls `read` with the first byte. False: the file ended before a byte that was read, so some
  // bytes were zeros of ours, and the mapping is not valid any more.
  template <typename Function>
  bool Read(const Function& read) {
    Begin();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    read(data_);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return End();
  }

 private:
  void Begin() const;
  bool End();
  void Unmap();

  char* start_ = nullptr;  // of the page in which `data_` is
  size_t length_ = 0;
  const char* data_ = nullptr;
};

}  // namespace tessera::agent
