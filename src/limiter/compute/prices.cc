// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/compute/prices.h"

namespace tessera::limiter {
namespace {

constexpr uint32_t kMemory = 8;        // samples in the mean of a price
constexpr uint32_t kNoisyMemory = 32;  // kMemory if samples differ much

int64_t Distance(int64_t a, int64_t b) { return a < b ? b - a : a - b; }

}  // namespace

void Prices::Reset(Price* entry, uint64_t key) {
  entry->price.store(kUnpriced, std::memory_order_relaxed);
  entry->deviation = entry->smallest_dropped = entry->shortest = 0;
  entry->near = entry->samples = entry->dropped = entry->outstanding = 0;
  entry->is_long = false;
  // The key is stored last. A reader compares it again after the price, so it never takes the price
  // of the previous key.
  entry->key.store(key, std::memory_order_release);
}

Price* Prices::Add(uint64_t key) {
  if (Price* entry = Find(key)) return entry;
  const uint32_t home = Home(key);
  Price* chosen = nullptr;
  for (uint32_t i = 0; i < kNear; ++i) {
    Price* entry = &entries_[(home + i) % kCapacity];
    if (entry->key.load(std::memory_order_relaxed) == 0) {
      chosen = entry;
      break;
    }
    if (chosen == nullptr || entry->samples < chosen->samples) chosen = entry;
  }
  Reset(chosen, key);
  return chosen;
}

void Prices::Forget(uint64_t key) {
  if (Price* entry = Find(key)) Reset(entry, 0);
}

void Prices::Clear() {
  for (Price& entry : entries_) {
    if (entry.key.load(std::memory_order_relaxed) != 0) Reset(&entry, 0);
  }
}

void Prices::Learn(Price* entry, int64_t own) {
  const int64_t price = entry->price.load(std::memory_order_relaxed);
  if (price == kUnpriced) {
    entry->samples = 1;
    entry->price.store(own, std::memory_order_relaxed);
    return;
  }
  const uint32_t memory = entry->deviation > price * 3 / 5 ? kNoisyMemory : kMemory;
  if (entry->samples < UINT32_MAX) ++entry->samples;
  const int64_t weight = entry->samples < memory ? entry->samples : memory;
  const int64_t next = price + (own - price) / weight;
  entry->deviation += (Distance(own, price) - entry->deviation) / 16;
  entry->price.store(next > 0 ? next : 1, std::memory_order_relaxed);
}

}  // namespace tessera::limiter
