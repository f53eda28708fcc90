// SPDX-License-Identifier: Apache-2.0
// Device memory that programs create without addresses (cuMemCreate), and its mappings. A piece is
// charged from its creation until the program holds no handle and no mapping of it: only then the
// driver frees it.
//
// The driver may give a released handle or address to another thread before this table removes it.
// So every change follows the driver's answer; a caller that receives a handle or an address that
// is still in the table ends the old entry; and a caller that ends an entry passes the Moment from
// before its driver call, so that younger entries stay. Threads: any.
#pragma once

#include <cstdint>

#include "src/limiter/region/spin_lock.h"
#include "src/limiter/tables/table.h"

namespace tessera::limiter {

// A charge that has ended.
struct EndedCharge {
  int gpu = -1;
  uint64_t bytes = 0;
};

class PhysicalPieces {
 public:
  using End = void (*)(void* argument, const EndedCharge& ended);
  // `end` is called without a lock held for each charge that ends.
  void Open(End end, void* argument) { end_ = end, argument_ = argument; }
  // Removes all entries, in a child after fork.
  void Reset();

  // Read before the driver call that releases or unmaps.
  uint64_t Moment();

  // Adds a piece that the driver has created. False: out of host memory.
  bool Add(uint64_t handle, int gpu, uint64_t bytes);
  // Retain adds a handle of a piece, Release removes one. Unknown handles have no effect.
  void Retain(uint64_t handle);
  void Release(uint64_t handle, uint64_t moment);
  // False: out of host memory.
  bool Map(uint64_t address, uint64_t handle);
  // Ends all mappings in the range, which begin at multiples of `step`.
  void Unmap(uint64_t address, uint64_t bytes, uint64_t step, uint64_t moment);

 private:
  struct Piece {
    uint64_t bytes;
    uint64_t born;        // the moment
    uint32_t references;  // handles and mappings
    int gpu;
  };
  struct Mapping {
    uint64_t handle;
    uint64_t born;
  };
  static uint32_t Place(uint64_t key) { return uint32_t(key * 0x9e3779b97f4a7c15u >> 32); }
  EndedCharge Drop(uint64_t handle);
  void Report(const EndedCharge& ended) {
    if (ended.gpu >= 0) end_(argument_, ended);
  }

  SpinLock lock_;
  uint64_t moment_ = 0;
  Table<Piece, Place> pieces_ = {};
  Table<Mapping, Place> mappings_ = {};
  End end_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace tessera::limiter
