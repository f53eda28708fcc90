// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/physical_memory.h"

namespace tessera::limiter {

void PhysicalPieces::Reset() {
  lock_.Reset();
  pieces_.Clear();
  mappings_.Clear();
}

uint64_t PhysicalPieces::Moment() {
  const SpinGuard lock(&lock_);
  return ++moment_;
}

// Removes one reference.
EndedCharge PhysicalPieces::Drop(uint64_t handle) {
  auto* piece = pieces_.Find(handle);
  if (piece == nullptr || --piece->value.references != 0) return {};
  const EndedCharge ended{piece->value.gpu, piece->value.bytes};
  pieces_.Erase(piece);
  return ended;
}

bool PhysicalPieces::Add(uint64_t handle, int gpu, uint64_t bytes) {
  EndedCharge ended;
  {
    const SpinGuard lock(&lock_);
    bool added = false;
    auto* piece = pieces_.Add(handle, &added);
    if (piece == nullptr) return false;
    if (!added) ended = {piece->value.gpu, piece->value.bytes};
    piece->value = {.bytes = bytes, .born = ++moment_, .references = 1, .gpu = gpu};
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
    mapping->value = {.handle = handle, .born = ++moment_};
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
