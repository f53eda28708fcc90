// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/charges.h"

#include "src/limiter/tables/blocks.h"
#include "src/limiter/tables/moment.h"

namespace tessera::limiter {
namespace {

// Minimum alignment of allocations that share a block.
constexpr uint64_t kAlign = 512;

uint64_t Align(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
uint64_t Key(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

}  // namespace

bool Charges::Charge(const ChargedObject& object, MemoryBudget* budget) {
  if (object.bytes == 0) return true;
  if (object.bytes > kMaxSmallBytes) {
    budget->Add(object.gpu, RoundToBlocks(object.bytes));
    return true;
  }
  bool added = false;
  auto* small_bytes = small_bytes_by_context_.Add(object.context, &added);
  if (small_bytes == nullptr) return false;
  const uint64_t before = RoundToBlocks(small_bytes->value);
  small_bytes->value += Align(object.bytes);
  budget->Add(object.gpu, RoundToBlocks(small_bytes->value) - before);
  return true;
}

void Charges::Uncharge(const ChargedObject& object, MemoryBudget* budget) {
  if (object.bytes > kMaxSmallBytes) {
    budget->Release(object.gpu, RoundToBlocks(object.bytes));
    return;
  }
  auto* small_bytes = small_bytes_by_context_.Find(object.context);
  if (object.bytes == 0 || small_bytes == nullptr) return;
  const uint64_t before = RoundToBlocks(small_bytes->value);
  small_bytes->value -= Align(object.bytes);
  budget->Release(object.gpu, before - RoundToBlocks(small_bytes->value));
  if (small_bytes->value == 0) small_bytes_by_context_.Erase(small_bytes);
}

bool Charges::Add(const void* handle, const Contexts::Info& context, uint64_t bytes,
                  MemoryBudget* budget, uint64_t default_bytes) {
  const SpinGuard lock(&lock_);
  const ChargedObject object{.bytes = bytes,
                             .context = context.id,
                             .gpu = context.gpu,
                             .default_bytes = default_bytes,
                             .added_moment = NextMoment()};
  bool added = false;
  auto* entry = entries_.Add(Key(handle), &added);
  if (entry == nullptr) return false;
  if (!added) Uncharge(entry->value, budget);
  entry->value = object;
  if (context.id != 0 && Charge(object, budget)) return true;
  entries_.Erase(entry);
  return false;
}

bool Charges::Find(const void* handle, ChargedObject* found) {
  const SpinGuard lock(&lock_);
  const auto* entry = entries_.Find(Key(handle));
  if (entry == nullptr) return false;
  *found = entry->value;
  return true;
}

void Charges::End(const void* handle, uint64_t call_moment, MemoryBudget* budget) {
  const SpinGuard lock(&lock_);
  auto* entry = entries_.Find(Key(handle));
  if (entry == nullptr || entry->value.added_moment >= call_moment) return;
  Uncharge(entry->value, budget);
  entries_.Erase(entry);
}

void Charges::EndContext(uint64_t id, MemoryBudget* budget) {
  const SpinGuard lock(&lock_);
  for (uint32_t i = 0; i < entries_.capacity(); ++i) {
    // Erase may move another entry to this place.
    while (entries_.At(i)->key != 0 && entries_.At(i)->value.context == id) {
      Uncharge(entries_.At(i)->value, budget);
      entries_.Erase(entries_.At(i));
    }
  }
}

void Charges::Reset() {
  lock_.Reset();
  entries_.Clear();
  small_bytes_by_context_.Clear();
}

}  // namespace tessera::limiter
