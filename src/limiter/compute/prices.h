// SPDX-License-Identifier: Apache-2.0
// Prices of one process's launches: GPU time by key, which stands for a function with its grid, an
// executable graph, or a size of copies. Prices are learned from timed launches.
//
// The table has a fixed size. A key that finds no room near its place replaces the least used entry
// there. Threads: any thread may call Find; all other functions need the caller's lock. Cost of
// Find: one cache line; no allocation, system call or atomic read-modify-write.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::limiter {

inline constexpr int64_t kUnpriced = INT64_MAX;

struct alignas(64) Price {
  std::atomic<uint64_t> key;   // 0: free
  std::atomic<int64_t> price;  // nanoseconds; kUnpriced until a launch is timed
  // The other fields need the lock.
  int64_t deviation;         // mean of |timed - price|
  int64_t smallest_dropped;  // of the samples dropped in succession
  int64_t shortest;          // shortest sample, slowly rising
  uint32_t near;             // running mean of the samples that are about as short
  uint32_t samples;          // samples in the price
  uint32_t dropped;          // successive samples that looked too long
  uint32_t outstanding;      // timed launches without a result yet
  bool is_long;              // a turn or more, so most samples include others' turns
};
static_assert(sizeof(Price) == 64);

class Prices {
 public:
  static constexpr uint32_t kCapacity = 4096;  // 2 to the power of 64 - 52, see Home

  // The entry of the key, or null.
  Price* Find(uint64_t key) {
    const uint32_t home = Home(key);
    for (uint32_t i = 0; i < kNear; ++i) {
      Price& entry = entries_[(home + i) % kCapacity];
      if (entry.key.load(std::memory_order_relaxed) == key) return &entry;
    }
    return nullptr;
  }
  // Returns the entry of the key, which is added if it is new.
  Price* Add(uint64_t key);
  void Forget(uint64_t key);
  // Removes all prices when functions are gone, because their handles may be reused.
  void Clear();

  // Adds the sample of a timed launch that took `own` nanoseconds.
  static void Learn(Price* entry, int64_t own);

 private:
  static constexpr uint32_t kNear = 8;
  static uint32_t Home(uint64_t key) { return uint32_t(key >> 52); }
  static void Reset(Price* entry, uint64_t key);

  Price entries_[kCapacity] = {};
};

// Never 0. Its high bits depend on all bits of the four arguments. Independent multiplications are
// the fastest way.
constexpr uint64_t PriceKey(uint64_t a, uint64_t b, uint64_t c = 0, uint64_t d = 0) {
  return (a * 0x9e3779b97f4a7c15u + b * 0xff51afd7ed558ccdu + c * 0xc4ceb9fe1a85ec53u +
          d * 0xd6e8feb86659fd93u) |
         1;
}

}  // namespace tessera::limiter
