// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/libraries.h"

#include "src/limiter/tables/moment.h"

namespace tessera::limiter {
namespace {

uint64_t AddressOf(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

}  // namespace

uint64_t Libraries::NewId() { return ++last_id_ & kIdMask; }

bool Libraries::Add(const void* handle, const LoadedLibrary& info, LoadedLibrary* replaced) {
  const SpinGuard guard(&lock_);
  bool is_new = false;
  auto* entry = entries_.Add(AddressOf(handle), &is_new);
  if (entry == nullptr) return false;
  *replaced = entry->value;
  entry->value = info;
  entry->value.added_moment = NextMoment();
  return true;
}

bool Libraries::Remove(const void* handle, uint64_t call_moment, LoadedLibrary* removed) {
  const SpinGuard guard(&lock_);
  auto* entry = entries_.Find(AddressOf(handle));
  if (entry == nullptr || entry->value.added_moment >= call_moment) return false;
  *removed = entry->value;
  entries_.Erase(entry);
  return true;
}

uint32_t Libraries::capacity() {
  const SpinGuard guard(&lock_);
  return entries_.capacity();
}

bool Libraries::At(uint32_t i, LoadedLibrary* info) {
  const SpinGuard guard(&lock_);
  if (i >= entries_.capacity() || entries_.At(i)->key == 0) return false;
  *info = entries_.At(i)->value;
  return true;
}

void Libraries::Reset() {
  lock_.Reset();
  entries_.Clear();
}

}  // namespace tessera::limiter
