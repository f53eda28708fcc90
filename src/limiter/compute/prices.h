// SPDX-License-Identifier: Apache-2.0
// What the launches of one process cost: GPU time by key, which stands for a function with its
// grid, an executable graph, or a size of copies. Prices are learned from launches that were timed.
//
// A fixed table. Where a key finds no room near its place, it replaces the one that was used least.
// Threads: Find may run in any thread. Everything else needs the caller's lock. Cost of Find: one
// cache line; no allocation, system call or atomic read-modify-write.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::limiter {

inline constexpr int64_t kUnpriced = INT64_MAX;

struct alignas(64) Price {
  std::atomic<uint64_t> key;   // 0: free
  std::atomic<int64_t> price;  // nanoseconds; kUnpriced until a launch was timed
  // Of the lock's owner.
  int64_t deviation;         // mean of |timed - price|
  int64_t smallest_dropped;  // of the samples that were dropped in a row
  int64_t shortest;          // of the samples, rising slowly
  uint32_t near;             // how many samples are about as short, as a running mean
  uint32_t samples;          // that formed the price
  uint32_t dropped;          // samples in a row that looked too long
  uint32_t outstanding;      // timed launches without a result yet
  bool is_long;              // about a turn or more, so nearly all samples are cut
};
static_assert(sizeof(Price) == 64);

class Prices {
 public:
  static constexpr uint32_t kCapacity = 4096;  // 2 to the power of 64 - 52, see Home

  // The entry of the key, or nullptr.
  Price* Find(uint64_t key) {
    const uint32_t home = Home(key);
    for (uint32_t i = 0; i < kNear; ++i) {
      Price& entry = entries_[(home + i) % kCapacity];
      if (entry.key.load(std::memory_order_relaxed) == key) return &entry;
    }
    return nullptr;
  }
  // Makes an entry where Find gives none.
  Price* Add(uint64_t key);
  void Forget(uint64_t key);
  // For functions that are gone: their handles may be given again.
  void Clear();

  // A timed launch took `own`.
  static void Learn(Price* entry, int64_t own);

 private:
  static constexpr uint32_t kNear = 8;
  static uint32_t Home(uint64_t key) { return uint32_t(key >> 52); }
  static void Reset(Price* entry, uint64_t key);

  Price entries_[kCapacity] = {};
};

// Never 0. Its high bits depend on all bits of the four. Multiplications that do not wait for each
// other cost the least.
constexpr uint64_t PriceKey(uint64_t a, uint64_t b, uint64_t c = 0, uint64_t d = 0) {
  return (a * 0x9e3779b97f4a7c15u + b * 0xff51afd7ed558ccdu + c * 0xc4ceb9fe1a85ec53u +
          d * 0xd6e8feb86659fd93u) |
         1;
}

}  // namespace tessera::limiter
