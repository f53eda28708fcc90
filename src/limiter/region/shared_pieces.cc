// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/shared_pieces.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "src/limiter/region/region_file.h"

namespace tessera::limiter {
namespace {

// The byte of `usage` after the bytes of the slots. Its lock admits one process at a time to Join.
constexpr off_t kLockByte = kMaxSlots;
// All attempts together take 0.1 s. If the lock is still held then, its holder is a stopped
// process. The caller then stays out of the table, and its bytes are counted in addition.
constexpr int kLockTries = 1000;
constexpr timespec kLockPause = {0, 100'000};

bool LockPieces(int fd) {
  struct flock lock = ByteRange(kLockByte);
  for (int tries = 0; tries < kLockTries; ++tries) {
    if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
    ::nanosleep(&kLockPause, nullptr);
  }
  return false;
}

uint32_t EntriesUsed(const Usage& usage) {
  const uint32_t used = usage.pieces_used.load();
  return used < kMaxPieces ? used : kMaxPieces;
}

uint32_t HolderCount(const SharedPiece& piece) {
  uint32_t count = 0;
  for (const auto& holder : piece.holders) count += holder.load() != 0 ? 1 : 0;
  return count;
}

}  // namespace

void SharedPieces::Open(const char* path, Usage* usage, uint32_t slot) {
  path_ = path;
  usage_ = usage;
  slot_ = slot;
}

SharedPiece* SharedPieces::Find(uint64_t id) const {
  for (uint32_t i = 0; i < EntriesUsed(*usage_); ++i) {
    if (usage_->pieces[i].id.load() == id) return &usage_->pieces[i];
  }
  return nullptr;
}

// The caller holds the lock, so that no other process takes the same free entry.
SharedPiece* SharedPieces::FindOrAdd(uint64_t id, int gpu, uint64_t bytes) {
  SharedPiece* free = nullptr;
  for (uint32_t i = 0; i < kMaxPieces && (free == nullptr || i < EntriesUsed(*usage_)); ++i) {
    SharedPiece& piece = usage_->pieces[i];
    const bool is_held = HolderCount(piece) != 0;
    if (is_held && piece.id.load() == id) {
      return piece.gpu.load() == uint32_t(gpu) && piece.bytes.load() == bytes ? &piece : nullptr;
    }
    if (free == nullptr && !is_held) free = &piece;
  }
  if (free == nullptr) return nullptr;
  free->id.store(id);
  free->gpu.store(uint32_t(gpu));
  free->bytes.store(bytes);
  const auto count = uint32_t(free - usage_->pieces) + 1;
  if (EntriesUsed(*usage_) < count) usage_->pieces_used.store(count);
  return free;
}

bool SharedPieces::TryJoin(uint64_t id, int gpu, uint64_t bytes, uint64_t added_bytes) {
  SharedPiece* const piece = FindOrAdd(id, gpu, bytes);
  if (piece == nullptr) return false;
  for (const auto& holder : piece->holders) {
    if (holder.load() == slot_ + 1) return false;
  }
  for (auto& holder : piece->holders) {
    if (holder.load() != 0) continue;
    usage_->gpus[gpu].held[slot_].fetch_add(added_bytes);
    holder.store(uint16_t(slot_ + 1));
    return true;
  }
  return false;
}

void SharedPieces::Join(uint64_t id, int gpu, uint64_t bytes, uint64_t added_bytes) {
  const int fd = ::open(path_, O_RDWR | O_CLOEXEC);
  const bool entered = fd >= 0 && LockPieces(fd) && TryJoin(id, gpu, bytes, added_bytes);
  if (!entered) usage_->gpus[gpu].held[slot_].fetch_add(added_bytes);
  if (fd >= 0) ::close(fd);
}

void SharedPieces::Leave(uint64_t id) {
  SharedPiece* const piece = Find(id);
  if (piece == nullptr) return;
  for (auto& holder : piece->holders) {
    if (holder.load() == slot_ + 1) holder.store(0);
  }
  usage_->piece_departures.fetch_add(1);
}

bool SharedPieces::HasOtherHolders(uint64_t id) const {
  const SharedPiece* const piece = Find(id);
  if (piece == nullptr) return false;
  for (const auto& holder : piece->holders) {
    if (holder.load() != 0 && holder.load() != slot_ + 1) return true;
  }
  return false;
}

void LeaveAllPieces(Usage* usage, uint32_t slot) {
  for (uint32_t i = 0; i < EntriesUsed(*usage); ++i) {
    for (auto& holder : usage->pieces[i].holders) {
      if (holder.load() == slot + 1) holder.store(0);
    }
  }
  usage->piece_departures.fetch_add(1);
}

uint64_t DuplicateBytes(const Usage& usage, int gpu) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < EntriesUsed(usage); ++i) {
    const SharedPiece& piece = usage.pieces[i];
    const uint32_t holders = HolderCount(piece);
    if (holders > 1 && piece.gpu.load() == uint32_t(gpu)) {
      bytes += (holders - 1) * piece.bytes.load();
    }
  }
  return bytes;
}

}  // namespace tessera::limiter
