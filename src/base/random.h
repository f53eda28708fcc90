// SPDX-License-Identifier: Apache-2.0
// Random numbers that depend only on the seed, not on the machine or the standard library. For
// experiments, simulations and random policies; keys and tokens need getrandom.
//
// Threads: any number, on separate objects. Cost: a nanosecond per number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tessera {

// SplitMix64: all seeds are equally good, and streams of adjacent seeds are independent.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Uniform below `bound`. REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) {
    // Numbers below 2^64 mod bound would bias the result.
    const uint64_t low = -bound % bound;
    uint64_t number = Next();
    while (number < low) number = Next();
    return number % bound;
  }

  // All orders of `items` are equally likely.
  template <typename Items>
  void Shuffle(Items& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace tessera
