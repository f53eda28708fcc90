// SPDX-License-Identifier: Apache-2.0
// An event that several processes record and wait for. A page of shared memory counts the records.
// A wait is for the last record, which any process may have made. If that process dies, the record
// is done. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "src/sim/state.h"

namespace tessera::cuda {

class SharedEvent {
 public:
  // Null: out of memory.
  static std::shared_ptr<SharedEvent> Create();
  // Owns `fd`, the descriptor of another process's event. Null: not an event.
  static std::shared_ptr<SharedEvent> Open(int fd);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  int fd() const { return fd_; }
  uint64_t inode() const { return inode_; }

  // Begins a record by the process in `slot` of the state, and returns its number. The same process
  // ends the record with Finish().
  uint64_t Record(uint32_t slot);
  void Finish(uint64_t record);
  // 0: never recorded.
  uint64_t last_record() const { return page_->recorded.load(); }
  bool IsDone(uint64_t record, sim::State& state) const;
  // Sleeps until the record is done, at most 10 ms.
  void Sleep(uint64_t record);

 private:
  struct Page {
    std::atomic<uint64_t> recorded, done;
    std::atomic<uint32_t> slot;    // process of the last record
    std::atomic<uint32_t> signal;  // futex, incremented at each end of a record
  };

  SharedEvent(int fd, uint64_t inode, Page* page) : fd_(fd), inode_(inode), page_(page) {}

  const int fd_;
  const uint64_t inode_;
  Page* const page_;
};

}  // namespace tessera::cuda
