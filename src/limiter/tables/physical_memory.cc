// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/physical_memory.h"

#include <unistd.h>

#include "src/limiter/tables/moment.h"

namespace tessera::limiter {

void PhysicalPieces::Reset() {
  lock_.Reset();
  pieces_.Clear();
  mappings_.Clear();
  shared_charges_.Clear();
  // Probes are copies of the parent's descriptors.
  for (uint32_t i = 0; i < exports_.capacity(); ++i) {
    const auto* entry = exports_.At(i);
    if (entry->key != 0 && entry->value.probe_fd >= 0) ::close(entry->value.probe_fd);
  }
  exports_.Clear();
  open_exports_.store(0);
}

// Removes one reference.
EndedCharge PhysicalPieces::Drop(uint64_t handle) {
  auto* piece = pieces_.Find(handle);
  if (piece == nullptr || --piece->value.references != 0) return {};
  const Piece last = piece->value;
  pieces_.Erase(piece);
  if (last.shared_charge == 0) return {last.gpu, last.bytes};
  if (auto* shared = shared_charges_.Find(last.shared_charge)) --shared->value.pieces;
  return EndIfUnused(last.shared_charge);
}

EndedCharge PhysicalPieces::EndIfUnused(uint64_t id) {
  auto* shared = shared_charges_.Find(id);
  if (shared == nullptr || shared->value.pieces != 0 || shared->value.exports != 0) return {};
  const EndedCharge ended{shared->value.gpu, shared->value.bytes};
  shared_charges_.Erase(shared);
  ForgetExports(id);
  shared_->Leave(id);
  return ended;
}

void PhysicalPieces::ForgetExports(uint64_t id) {
  for (uint32_t i = 0; i < exports_.capacity(); ++i) {
    // Erase may move another entry to this place.
    while (exports_.At(i)->key != 0 && exports_.At(i)->value.shared_charge == id) {
      shared_->Leave(exports_.At(i)->key);
      exports_.Erase(exports_.At(i));
    }
  }
}

// Moves the charge of the piece to the shared charge, which is either new or already charged for
// this piece.
bool PhysicalPieces::JoinSharedCharge(uint64_t id, Piece* piece) {
  bool added = false;
  auto* shared = shared_charges_.Add(id, &added);
  if (shared == nullptr) return false;
  if (added) shared->value = {.bytes = piece->bytes, .gpu = piece->gpu, .pieces = 0, .exports = 0};
  ++shared->value.pieces;
  piece->shared_charge = id;
  return true;
}

bool PhysicalPieces::AddImported(uint64_t handle, int gpu, const SharedMark& mark,
                                 uint64_t* charge) {
  EndedCharge ended;
  {
    const SpinGuard lock(&lock_);
    bool added = false;
    auto* entry = pieces_.Add(handle, &added);
    if (entry == nullptr) return false;
    if (!added) {
      entry->value.references = 1;
      ended = Drop(handle);
      entry = pieces_.Add(handle, &added);
    }
    entry->value = {.bytes = mark.bytes, .born = NextMoment(), .references = 1, .gpu = gpu};
    entry->value.is_growing = mark.id == 0;
    *charge = mark.bytes;
    if (mark.id != 0) {
      const uint64_t id = SharedChargeOf(mark.id);
      if (shared_charges_.Find(id) != nullptr) *charge = 0;
      if (!JoinSharedCharge(id, &entry->value)) {
        pieces_.Erase(entry);
        return false;
      }
    }
  }
  Report(ended);
  return true;
}

uint64_t PhysicalPieces::SharedChargeOf(uint64_t mark_id) {
  const auto* exported = exports_.Find(mark_id);
  return exported != nullptr ? exported->value.shared_charge : mark_id;
}

bool PhysicalPieces::IsChargedFor(uint64_t mark_id) {
  const SpinGuard lock(&lock_);
  return mark_id != 0 && shared_charges_.Find(SharedChargeOf(mark_id)) != nullptr;
}

uint64_t PhysicalPieces::BytesOf(uint64_t handle) {
  const SpinGuard lock(&lock_);
  const auto* piece = pieces_.Find(handle);
  return piece == nullptr ? 0 : piece->value.bytes;
}

// The handle of the caller keeps the shared charge until this process is in the table.
void PhysicalPieces::AddExport(uint64_t handle, const SharedMark& mark, int probe_fd) {
  const int gpu = RecordExport(handle, mark, probe_fd);
  if (gpu >= 0) shared_->Join(mark.id, gpu, mark.bytes, 0);
}

int PhysicalPieces::RecordExport(uint64_t handle, const SharedMark& mark, int probe_fd) {
  const SpinGuard lock(&lock_);
  auto* piece = pieces_.Find(handle);
  bool added = false;
  auto* exported = piece == nullptr ? nullptr : exports_.Add(mark.id, &added);
  const bool joined = exported != nullptr &&
                      (piece->value.shared_charge != 0 || JoinSharedCharge(mark.id, &piece->value));
  if (!joined) {
    // Out of host memory: one reference more keeps the charge.
    if (exported != nullptr) exports_.Erase(exported);
    if (piece != nullptr) ++piece->value.references;
    if (probe_fd >= 0) ::close(probe_fd);
    return -1;
  }
  exported->value = {
      .shared_charge = piece->value.shared_charge, .bytes = mark.bytes, .probe_fd = probe_fd};
  ++shared_charges_.Find(piece->value.shared_charge)->value.exports;
  open_exports_.fetch_add(1, std::memory_order_relaxed);
  return piece->value.gpu;
}

void PhysicalPieces::EndClosedExports() {
  if (open_exports_.load(std::memory_order_relaxed) == 0) return;
  while (true) {
    EndedCharge ended;
    {
      const SpinGuard lock(&lock_);
      auto* closed = FindClosed();
      if (closed == nullptr) return;
      const uint64_t id = closed->value.shared_charge;
      Close(closed);
      open_exports_.fetch_sub(1, std::memory_order_relaxed);
      if (auto* shared = shared_charges_.Find(id)) --shared->value.exports;
      ended = EndIfUnused(id);
    }
    Report(ended);
  }
}

void PhysicalPieces::Close(Table<Export, HashKey>::Entry* exported) {
  ::close(exported->value.probe_fd);
  exported->value.probe_fd = kClosed;
  if (shared_->HasOthers(exported->key)) return;
  // The table knows a piece that is still held by its first mark.
  if (exported->key != exported->value.shared_charge) shared_->Leave(exported->key);
  exports_.Erase(exported);
}

Table<PhysicalPieces::Export, PhysicalPieces::HashKey>::Entry* PhysicalPieces::FindClosed() {
  for (uint32_t i = 0; i < exports_.capacity(); ++i) {
    auto* entry = exports_.At(i);
    if (entry->key == 0 || entry->value.probe_fd < 0) continue;
    if (!IsOpen(entry->value.probe_fd, {entry->key, entry->value.bytes})) return entry;
  }
  return nullptr;
}

uint64_t PhysicalPieces::Growth(uint64_t handle, uint64_t bytes, int* gpu) {
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
  return more;
}

bool PhysicalPieces::Add(uint64_t handle, int gpu, uint64_t bytes) {
  EndedCharge ended;
  {
    const SpinGuard lock(&lock_);
    bool added = false;
    auto* piece = pieces_.Add(handle, &added);
    if (piece == nullptr) return false;
    if (!added) {
      piece->value.references = 1;
      ended = Drop(handle);
      piece = pieces_.Add(handle, &added);
    }
    piece->value = {.bytes = bytes, .born = NextMoment(), .references = 1, .gpu = gpu};
  }
  Report(ended);
  return true;
}

void PhysicalPieces::Retain(uint64_t handle) {
  const SpinGuard lock(&lock_);
  if (auto* piece = pieces_.Find(handle)) ++piece->value.references;
}

void PhysicalPieces::Release(uint64_t handle, uint64_t moment) {
  EndedCharge ended;
  {
    const SpinGuard lock(&lock_);
    auto* piece = pieces_.Find(handle);
    if (piece != nullptr && piece->value.born < moment) ended = Drop(handle);
  }
  Report(ended);
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
    if (!added) ended = Drop(mapping->value.handle);
    mapping->value = {.handle = handle, .born = NextMoment()};
  }
  Report(ended);
  return true;
}

void PhysicalPieces::Unmap(uint64_t address, uint64_t bytes, uint64_t step, uint64_t moment) {
  for (uint64_t at = address; at < address + bytes; at += step) {
    EndedCharge ended;
    {
      const SpinGuard lock(&lock_);
      auto* mapping = mappings_.Find(at);
      if (mapping == nullptr || mapping->value.born >= moment) continue;
      ended = Drop(mapping->value.handle);
      mappings_.Erase(mapping);
    }
    Report(ended);
  }
}

}  // namespace tessera::limiter
