// SPDX-License-Identifier: Apache-2.0
// Prices of one process's launches: GPU time by key. A key stands for a function with a number of
// blocks, for an executable graph, or for copies of a size. Each power of two is divided into four
// classes of sizes, and a class has one key. So a function has few keys, even if it is launched
// with many grids. Prices are learned from timed launches.
//
// The table has a fixed size. If the kNear entries from the home of a new key are all taken, the
// key replaces the least used of them. Threads: any thread may call Find; the caller holds a lock
// during all other calls. Cost of Find: one cache line; no allocation, system call or atomic
// read-modify-write.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::limiter {

inline constexpr int64_t kUnpriced = INT64_MAX;

// The work that a launch gives to the GPU.
struct Work {
  uint64_t what;      // identifies a function, an executable graph, or copies
  uint64_t size = 0;  // blocks of the grid, or bytes
};

// Sizes below 8 have a class each; larger sizes have four classes in each power of two. The class
// rises with the size.
constexpr uint64_t SizeClass(uint64_t size) {
  const int shift = 61 - __builtin_clzll(size | 4);
  return uint64_t(shift) * 4 + (size >> shift);
}
// The smallest size of a class.
constexpr uint64_t LeastSize(uint64_t size_class) {
  if (size_class < 8) return size_class;
  const uint64_t shift = size_class / 4 - 1;
  return (size_class - shift * 4) << shift;
}

// Never 0. The high bits of the key depend on all bits of the work.
constexpr uint64_t ClassKey(uint64_t what, uint64_t size_class) {
  return (what * 0x9e3779b97f4a7c15u + size_class * 0xff51afd7ed558ccdu) | 1;
}
constexpr uint64_t PriceKey(const Work& work) { return ClassKey(work.what, SizeClass(work.size)); }

// Grids with the same number of blocks have the same key.
constexpr Work KernelWork(uint64_t function, uint64_t x, uint64_t y, uint64_t z) {
  return {function, x * y * z};
}

struct alignas(64) Price {
  std::atomic<uint64_t> key;   // 0: free
  std::atomic<int64_t> price;  // nanoseconds; kUnpriced until a launch is timed
  // The caller's lock protects the other fields.
  int64_t deviation;         // mean of |timed - price|
  int64_t smallest_dropped;  // smallest of the last `dropped` samples
  int64_t shortest;          // shortest sample, slowly rising
  int64_t least;             // lower bound of a long launch, slowly falling; 0: none
  uint32_t samples;          // samples in the price
  uint32_t outstanding;      // timed launches without a result yet
  uint32_t version;          // incremented when the price is forgotten
  uint16_t near;             // fraction of the samples near `shortest`, in 4096ths
  uint8_t dropped;           // successive samples that looked too long
  bool is_long;              // about a turn or more: most samples include turns of other processes
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
      if (entry.key.load(std::memory_order_acquire) == key) return &entry;
    }
    return nullptr;
  }
  // Returns the entry of the key, which is added if it is new.
  Price* Add(uint64_t key);
  // The prices of launches of the same function, or of copies, with other sizes.
  struct Similar {
    int64_t price = kUnpriced;  // estimated from the nearest sizes with a price
    bool outstanding = false;   // no size has a price yet, and a launch is being timed
  };
  Similar FindSimilar(const Work& work);
  // Forgets the price of work that is gone or has changed. Its timed launches stay outstanding.
  void Forget(const Work& work);
  void ForgetAll();
  // Removes all entries. REQUIRES: no launch is outstanding.
  void Clear();

  // Adds the sample of a timed launch: the GPU time that it took.
  static void Learn(Price* entry, int64_t sample_ns);

 private:
  static constexpr uint32_t kNear = 8;
  static uint32_t Home(uint64_t key) { return uint32_t(key >> 52); }
  static void Reset(Price* entry, uint64_t key);
  static void ForgetPrice(Price* entry);

  Price entries_[kCapacity] = {};
};

}  // namespace tessera::limiter
