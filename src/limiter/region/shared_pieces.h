// SPDX-License-Identifier: Apache-2.0
// Pieces of device memory that several processes of the container share (SharedPiece in region.h).
// Each holder has the bytes of the piece in its slot, because any holder may end first. The table
// lists which slots hold the same piece, so that MemoryBudget can subtract bytes that are counted
// more than once.
//
// Exactness. A sum may be too large for an instant, never too small: a holder adds its bytes before
// it enters the table, and leaves the table before it subtracts them. If the table is full, or the
// piece already has kMaxHolders holders, the bytes of a new holder are counted in addition.
//
// Crashes. Entries follow the rules of slots: the process that clears the slot of a dead process
// first removes the slot from the table. A process that joins holds a lock of the file, which the
// kernel releases at the end of the process.
// Threads: any.
#pragma once

#include <cstdint>

#include "src/limiter/region.h"

namespace tessera::limiter {

class SharedPieces {
 public:
  // Called together with MemoryBudget::Open. `path` is the path of `usage`.
  void Open(const char* path, Usage* usage, uint32_t slot);

  // Makes this process a holder of the piece, and at the same time adds `added_bytes` to the held
  // bytes of its slot: the bytes of the piece, or 0 if the slot has them already. Makes system
  // calls.
  void Join(uint64_t id, int gpu, uint64_t bytes, uint64_t added_bytes);
  // Removes this process from the holders of the piece. The caller then calls
  // MemoryBudget::Release.
  void Leave(uint64_t id);
  // Whether another process of the container holds the piece.
  bool HasOtherHolders(uint64_t id) const;

 private:
  SharedPiece* Find(uint64_t id) const;
  SharedPiece* FindOrAdd(uint64_t id, int gpu, uint64_t bytes);
  bool TryJoin(uint64_t id, int gpu, uint64_t bytes, uint64_t added_bytes);

  const char* path_ = nullptr;
  Usage* usage_ = nullptr;
  uint32_t slot_ = 0;
};

// Removes the slot of a dead process from all pieces. Called before the slot is cleared.
void LeaveAllPieces(Usage* usage, uint32_t slot);

// Bytes of a GPU that the slots count more than once: the size of each piece times the number of
// its further holders.
uint64_t DuplicateBytes(const Usage& usage, int gpu);

}  // namespace tessera::limiter
