// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/arrays.h"

#include "src/limiter/blocks.h"

namespace tessera::limiter {
namespace {

// The driver aligns arrays that share a block like this at least.
constexpr uint64_t kAlign = 512;

uint64_t Align(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
uint64_t Key(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

}  // namespace

bool Arrays::Charge(const Array& array, Accounts* accounts) {
  if (array.bytes > kSmallBytes) {
    accounts->Add(array.gpu, RoundToBlocks(array.bytes));
    return true;
  }
  bool added = false;
  auto* shared = shared_.Add(array.context, &added);
  if (shared == nullptr) return false;
  const uint64_t before = RoundToBlocks(shared->value);
  shared->value += Align(array.bytes);
  accounts->Add(array.gpu, RoundToBlocks(shared->value) - before);
  return true;
}

void Arrays::Uncharge(const Array& array, Accounts* accounts) {
  if (array.bytes > kSmallBytes) {
    accounts->Release(array.gpu, RoundToBlocks(array.bytes));
    return;
  }
  auto* shared = shared_.Find(array.context);
  if (shared == nullptr) return;
  const uint64_t before = RoundToBlocks(shared->value);
  shared->value -= Align(array.bytes);
  accounts->Release(array.gpu, before - RoundToBlocks(shared->value));
  if (shared->value == 0) shared_.Erase(shared);
}

bool Arrays::Add(const void* handle, const Contexts::Known& context, uint64_t bytes,
                 Accounts* accounts) {
  const Array array{.bytes = bytes, .context = context.id, .gpu = context.gpu};
  const SpinGuard lock(&lock_);
  bool added = false;
  auto* entry = arrays_.Add(Key(handle), &added);
  if (entry == nullptr) return false;
  if (!added) Uncharge(entry->value, accounts);
  entry->value = array;
  if (context.id != 0 && Charge(array, accounts)) return true;
  arrays_.Erase(entry);
  return false;
}

bool Arrays::Take(const void* handle, Array* taken) {
  const SpinGuard lock(&lock_);
  auto* entry = arrays_.Find(Key(handle));
  if (entry == nullptr) return false;
  *taken = entry->value;
  arrays_.Erase(entry);
  return true;
}

void Arrays::PutBack(const void* handle, const Array& taken) {
  const SpinGuard lock(&lock_);
  bool added = false;
  auto* entry = arrays_.Add(Key(handle), &added);
  if (entry != nullptr) entry->value = taken;
}

void Arrays::EndCharge(const Array& taken, Accounts* accounts) {
  const SpinGuard lock(&lock_);
  Uncharge(taken, accounts);
}

void Arrays::EndContext(uint64_t id, Accounts* accounts) {
  const SpinGuard lock(&lock_);
  for (uint32_t i = 0; i < arrays_.capacity(); ++i) {
    // Another entry may move to where one is erased.
    while (arrays_.At(i)->key != 0 && arrays_.At(i)->value.context == id) {
      Uncharge(arrays_.At(i)->value, accounts);
      arrays_.Erase(arrays_.At(i));
    }
  }
}

void Arrays::Reset() {
  lock_.Reset();
  arrays_.Clear();
  shared_.Clear();
}

}  // namespace tessera::limiter
