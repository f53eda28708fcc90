// SPDX-License-Identifier: Apache-2.0
// Device memory that programs create apart from addresses (cuMemCreate), and where it is mapped. A
// piece is charged from its creation until the program holds no handle and no mapping of it: only
// then the driver frees it.
//
// A handle or an address that the driver has taken back may be given to another thread before this
// table hears of the end. So all changes follow the driver's answer; who gets a handle or an
// address that is still in the table ends the old entry; and who ends one names the moment before
// the driver was asked (Moment), and leaves younger entries alone. Threads: any.
#pragma once

#include <cstdint>

#include "src/limiter/spin_lock.h"
#include "src/limiter/table.h"

namespace tessera::limiter {

// What is no longer charged.
struct EndedCharge {
  int gpu = -1;
  uint64_t bytes = 0;
};

class PhysicalPieces {
 public:
  using End = void (*)(void* argument, const EndedCharge& ended);
  // `end` is called without a lock held for each charge that ends.
  void Open(End end, void* argument) { end_ = end, argument_ = argument; }
  // Forgets everything, in a child after fork.
  void Reset();

  // To be read before the driver is asked to release or to unmap.
  uint64_t Moment();

  // The driver has created it. False: there is no memory to remember it.
  bool Add(uint64_t handle, int gpu, uint64_t bytes);
  // The program has one more, or one less, handle of it. Unknown handles are not charged here.
  void Retain(uint64_t handle);
  void Release(uint64_t handle, uint64_t moment);
  // False: there is no memory to remember it.
  bool Map(uint64_t address, uint64_t handle);
  // All mappings in the range have ended. They begin at multiples of `step`.
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
