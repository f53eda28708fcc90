// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/contexts.h"

namespace tessera::limiter {
namespace {

constexpr uintptr_t kNeverUsed = 0, kRemoved = 1;

}  // namespace

uint32_t Contexts::HomeIndexOf(uintptr_t handle) {
  return uint32_t((handle >> 4) * 0x9e3779b97f4a7c15u >> 54);
}
static_assert(Contexts::kCapacity == 1 << (64 - 54));

const Contexts::Entry* Contexts::FindEntry(uintptr_t handle) const {
  uint32_t i = HomeIndexOf(handle);
  for (uint32_t steps = 0; steps < kCapacity; ++steps, i = (i + 1) % kCapacity) {
    const uintptr_t found = entries_[i].handle.load(std::memory_order_acquire);
    if (found == handle) return &entries_[i];
    if (found == kNeverUsed) return nullptr;
  }
  return nullptr;
}

bool Contexts::Find(const void* handle, Info* info) const {
  const Entry* entry = FindEntry(reinterpret_cast<uintptr_t>(handle));
  if (entry == nullptr) return false;
  *info = {entry->id.load(std::memory_order_relaxed), entry->gpu.load(std::memory_order_relaxed),
           entry->is_counted.load(std::memory_order_relaxed)};
  return true;
}

bool Contexts::At(uint32_t i, Info* info) const {
  const uintptr_t handle = entries_[i].handle.load(std::memory_order_acquire);
  return handle > kRemoved && Find(reinterpret_cast<const void*>(handle), info);
}

bool Contexts::Store(uintptr_t handle, const Info& info) {
  uint32_t i = HomeIndexOf(handle);
  for (uint32_t steps = 0; steps < kCapacity; ++steps, i = (i + 1) % kCapacity) {
    Entry& entry = entries_[i];
    if (entry.handle.load(std::memory_order_relaxed) > kRemoved) continue;
    entry.id.store(info.id, std::memory_order_relaxed);
    entry.gpu.store(info.gpu, std::memory_order_relaxed);
    entry.is_counted.store(info.is_counted, std::memory_order_relaxed);
    entry.handle.store(handle, std::memory_order_release);
    return true;
  }
  return false;
}

uint64_t Contexts::AddLocked(uintptr_t handle, int gpu) {
  if (const Entry* entry = FindEntry(handle)) return entry->id.load(std::memory_order_relaxed);
  return Store(handle, {++last_id_, gpu}) ? last_id_ : 0;
}

uint64_t Contexts::Add(const void* handle, int gpu) {
  const SpinGuard guard(&lock_);
  return AddLocked(reinterpret_cast<uintptr_t>(handle), gpu);
}

uint64_t Contexts::last_id() {
  const SpinGuard guard(&lock_);
  return last_id_;
}

bool Contexts::AddCounted(const void* handle, int gpu, uint64_t last_id, bool* is_new,
                          Info* replaced) {
  const SpinGuard guard(&lock_);
  const auto key = reinterpret_cast<uintptr_t>(handle);
  (void)RemoveLocked(key, last_id, replaced);
  if (AddLocked(key, gpu) == 0) return false;
  *is_new = !entries_[FindEntry(key) - entries_].is_counted.exchange(true);
  return true;
}

bool Contexts::Remove(const void* handle, uint64_t last_id, Info* removed) {
  const SpinGuard guard(&lock_);
  return RemoveLocked(reinterpret_cast<uintptr_t>(handle), last_id, removed);
}

bool Contexts::RemoveLocked(uintptr_t handle, uint64_t last_id, Info* removed) {
  Info found;
  if (!Find(reinterpret_cast<const void*>(handle), &found) || found.id > last_id) return false;
  *removed = found;
  entries_[FindEntry(handle) - entries_].handle.store(kRemoved, std::memory_order_release);
  return true;
}

void Contexts::Reset() {
  for (Entry& entry : entries_) entry.handle.store(kNeverUsed);
  lock_.Reset();
}

}  // namespace tessera::limiter
