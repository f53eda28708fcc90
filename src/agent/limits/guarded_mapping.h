// SPDX-License-Identifier: Apache-2.0
// A read-only mapping of a part of a file that another program may truncate at any time. The kernel
// sends SIGBUS at an access beyond the end of a mapped file, which would end the program. During
// Read a signal handler maps a page of zeros instead. All other SIGBUS go to the earlier handler.
// It is meant for files whose writer is not trusted, and that are read too often for pread.
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
  // Maps `size` bytes at `offset` of the file; not valid if the kernel fails to map them.
  GuardedMapping(int fd, off_t offset, size_t size);
  ~GuardedMapping();
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;

  bool valid() const { return data_ != nullptr; }

  // Calls `read` with the address of the first byte. Returns false if the file ended before a byte
  // that was read: then zeros replaced the missing bytes, and the mapping is not valid any more.
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

  char* start_ = nullptr;  // start of the page of `data_`
  size_t length_ = 0;
  const char* data_ = nullptr;
};

}  // namespace tessera::agent
