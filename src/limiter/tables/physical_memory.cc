// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/physical_memory.h"

#include <errno.h>
#include <unistd.h>

#include "src/limiter/tables/moment.h"

namespace tessera::limiter {

void PhysicalPieces::Reset() {
  lock_.Reset();
  pieces_.Clear();
  mappings_.Clear();
  shared_charges_.Clear();
  // The child has inherited the parent's probes.
  for (uint32_t i = 0; i < probes_.capacity(); ++i) {
    if (probes_.At(i)->key != 0) ::close(probes_.At(i)->value);
  }
  probes_.Clear();
  probe_count_.store(0);
  next_sweep_count_.store(kFirstSweepCount);
}

PhysicalPieces::Piece* PhysicalPieces::AddPiece(uint64_t handle, EndedCharge* ended) {
  bool is_new = false;
  auto* entry = pieces_.Add(handle, &is_new);
  if (entry == nullptr) return nullptr;
  if (!is_new) {
    entry->value.references = 1;
    *ended = DropReference(handle);
    entry = pieces_.Add(handle, &is_new);
  }
  return &entry->value;
}

EndedCharge PhysicalPieces::DropReference(uint64_t handle) {
  auto* piece = pieces_.Find(handle);
  if (piece == nullptr || --piece->value.references != 0) return {};
  const Piece removed = piece->value;
  pieces_.Erase(piece);
  if (removed.shared_charge == 0) return {removed.gpu, removed.bytes};
  if (auto* shared = shared_charges_.Find(removed.shared_charge)) --shared->value.pieces;
  return EndSharedChargeIfUnused(removed.shared_charge);
}

EndedCharge PhysicalPieces::EndSharedChargeIfUnused(uint64_t id) {
  auto* shared = shared_charges_.Find(id);
  if (shared == nullptr || shared->value.pieces != 0 || !CloseProbeIfUnused(id, shared->value)) {
    return {};
  }
  const EndedCharge ended{shared->value.gpu, shared->value.bytes};
  shared_charges_.Erase(shared);
  container_pieces_->Leave(id);
  return ended;
}

bool PhysicalPieces::CloseProbeIfUnused(uint64_t id, const SharedCharge& shared) {
  auto* probe = probes_.Find(id);
  if (probe != nullptr && HasOpenDescriptor(probe->value, {id, shared.bytes})) return false;
  if (probe != nullptr) {
    ::close(probe->value);
    probes_.Erase(probe);
    probe_count_.fetch_sub(1, std::memory_order_relaxed);
  }
  return !shared.is_permanent;
}

// Makes the shared charge `id` pay for the piece, and creates the shared charge if it does not
// exist.
bool PhysicalPieces::JoinSharedCharge(uint64_t id, Piece* piece) {
  bool added = false;
  auto* shared = shared_charges_.Add(id, &added);
  if (shared == nullptr) return false;
  if (added) {
    shared->value = {.bytes = piece->bytes, .gpu = piece->gpu, .pieces = 0, .is_permanent = false};
  }
  ++shared->value.pieces;
  piece->shared_charge = id;
  return true;
}

bool PhysicalPieces::AddImported(uint64_t handle, int gpu, const PieceMark& mark,
                                 uint64_t* charge) {
  EndedCharge ended;
  bool is_added = true;
  {
    const SpinGuard lock(&lock_);
    Piece* const piece = AddPiece(handle, &ended);
    if (piece == nullptr) return false;
    *piece = {.bytes = mark.bytes, .added_moment = NextMoment(), .references = 1, .gpu = gpu};
    piece->is_growing = mark.id == 0;
    *charge = mark.bytes;
    if (mark.id != 0) {
      if (shared_charges_.Find(mark.id) != nullptr) *charge = 0;
      if (!JoinSharedCharge(mark.id, piece)) {
        pieces_.Erase(pieces_.Find(handle));
        is_added = false;
      }
    }
  }
  NotifyEnd(ended);
  return is_added;
}

bool PhysicalPieces::IsChargedFor(uint64_t id) {
  const SpinGuard lock(&lock_);
  return id != 0 && shared_charges_.Find(id) != nullptr;
}

void PhysicalPieces::AddExport(uint64_t handle, int fd) {
  SharedCharge shared = {};
  bool out_of_fds = false;
  uint64_t id = RecordExport(handle, fd, &shared, &out_of_fds);
  if (out_of_fds || probe_count_.load(std::memory_order_relaxed) >= next_sweep_count_.load()) {
    EndChargesOfClosedExports();
  }
  if (out_of_fds) id = RecordExport(handle, fd, &shared, nullptr);
  // Join has no effect if this process is already a holder of the piece.
  if (id != 0) container_pieces_->Join(id, shared.gpu, shared.bytes, 0);
}

// The charge cannot end during the call, because the caller holds a handle.
uint64_t PhysicalPieces::RecordExport(uint64_t handle, int fd, SharedCharge* recorded,
                                      bool* out_of_fds) {
  const SpinGuard lock(&lock_);
  auto* piece = pieces_.Find(handle);
  if (piece == nullptr || piece->value.bytes == 0) return 0;
  SharedCharge* const shared = FindOrAddSharedCharge(&piece->value);
  if (shared == nullptr) {
    ++piece->value.references;  // out of host memory: the charge stays
    return 0;
  }
  *recorded = *shared;
  const uint64_t id = piece->value.shared_charge;
  if (fd >= 0 && MarkExport(fd, id, *shared)) return id;
  if (fd >= 0 && out_of_fds != nullptr && (errno == EMFILE || errno == ENFILE)) {
    *out_of_fds = true;
  } else {
    shared->is_permanent = true;
  }
  return id;
}

PhysicalPieces::SharedCharge* PhysicalPieces::FindOrAddSharedCharge(Piece* piece) {
  if (piece->shared_charge == 0) {
    uint64_t id = NewPieceId();
    while (shared_charges_.Find(id) != nullptr || container_pieces_->HasOtherHolders(id))
      id = NewPieceId();
    if (!JoinSharedCharge(id, piece)) return nullptr;
  }
  return &shared_charges_.Find(piece->shared_charge)->value;
}

bool PhysicalPieces::MarkExport(int fd, uint64_t id, const SharedCharge& shared) {
  bool added = false;
  auto* probe = probes_.Add(id, &added);
  errno = 0;
  if (probe == nullptr) return false;
  if (added) probe->value = -1;
  const bool marked = MarkDescriptor(fd, {id, shared.bytes}, &probe->value);
  if (added && marked) probe_count_.fetch_add(1, std::memory_order_relaxed);
  if (added && !marked) probes_.Erase(probe);
  return marked;
}

void PhysicalPieces::EndChargesOfClosedExports() {
  if (probe_count_.load(std::memory_order_relaxed) == 0) return;
  uint32_t capacity = 0;
  for (uint32_t i = 0; true;) {
    EndedCharge ended;
    {
      const SpinGuard lock(&lock_);
      if (capacity != probes_.capacity()) i = 0;  // a new table
      capacity = probes_.capacity();
      if (i >= capacity) {
        const uint32_t doubled = 2 * probe_count_.load(std::memory_order_relaxed);
        next_sweep_count_.store(doubled > kFirstSweepCount ? doubled : kFirstSweepCount);
        return;
      }
      const uint64_t id = probes_.At(i)->key;
      if (auto* shared = shared_charges_.Find(id)) (void)CloseProbeIfUnused(id, shared->value);
      // If the probe was closed, the entry of another probe may have moved to this index.
      if (probes_.At(i)->key == id) ++i;
      ended = EndSharedChargeIfUnused(id);
    }
    NotifyEnd(ended);
  }
}

uint64_t PhysicalPieces::BytesToGrow(uint64_t handle, uint64_t bytes, int* gpu) {
  const SpinGuard lock(&lock_);
  const auto* piece = pieces_.Find(handle);
  if (piece == nullptr || !piece->value.is_growing || piece->value.bytes >= bytes) return 0;
  *gpu = piece->value.gpu;
  return bytes - piece->value.bytes;
}

uint64_t PhysicalPieces::Grow(uint64_t handle, uint64_t bytes) {
  const SpinGuard lock(&lock_);
  auto* piece = pieces_.Find(handle);
  if (piece == nullptr || piece->value.bytes >= bytes) return 0;
  const uint64_t more = bytes - piece->value.bytes;
  piece->value.bytes = bytes;
  if (auto* shared = shared_charges_.Find(piece->value.shared_charge)) shared->value.bytes += more;
  return more;
}

bool PhysicalPieces::Add(uint64_t handle, int gpu, uint64_t bytes) {
  EndedCharge ended;
  {
    const SpinGuard lock(&lock_);
    Piece* const piece = AddPiece(handle, &ended);
    if (piece == nullptr) return false;
    *piece = {.bytes = bytes, .added_moment = NextMoment(), .references = 1, .gpu = gpu};
  }
  NotifyEnd(ended);
  return true;
}

void PhysicalPieces::Retain(uint64_t handle) {
  const SpinGuard lock(&lock_);
  if (auto* piece = pieces_.Find(handle)) ++piece->value.references;
}

void PhysicalPieces::Release(uint64_t handle, uint64_t call_moment) {
  EndedCharge ended;
  {
    const SpinGuard lock(&lock_);
    auto* piece = pieces_.Find(handle);
    if (piece != nullptr && piece->value.added_moment < call_moment) ended = DropReference(handle);
  }
  NotifyEnd(ended);
}

bool PhysicalPieces::Map(uint64_t address, uint64_t handle) {
  EndedCharge ended;
  {
    const SpinGuard lock(&lock_);
    auto* piece = pieces_.Find(handle);
    if (piece == nullptr) return true;
    bool added = false;
    auto* mapping = mappings_.Add(address, &added);
    if (mapping == nullptr) return false;
    ++piece->value.references;
    if (!added) ended = DropReference(mapping->value.handle);
    mapping->value = {.handle = handle, .added_moment = NextMoment()};
  }
  NotifyEnd(ended);
  return true;
}

void PhysicalPieces::Unmap(uint64_t address, uint64_t bytes, uint64_t step, uint64_t call_moment) {
  for (uint64_t at = address; at < address + bytes; at += step) {
    EndedCharge ended;
    {
      const SpinGuard lock(&lock_);
      auto* mapping = mappings_.Find(at);
      if (mapping == nullptr || mapping->value.added_moment >= call_moment) continue;
      ended = DropReference(mapping->value.handle);
      mappings_.Erase(mapping);
    }
    NotifyEnd(ended);
  }
}

}  // namespace tessera::limiter
