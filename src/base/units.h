// SPDX-License-Identifier: Apache-2.0
// Typed memory and compute, so that GiB, 256 MiB blocks and percent cannot be mixed up. The units
// in which pods request GPUs exist only in src/device.
#pragma once

#include <compare>
#include <cstdint>

namespace tessera {

// A number with its unit as a type. Arithmetic keeps the unit; `.count()` drops it.
template <typename Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  explicit constexpr Quantity(int64_t count) : count_(count) {}

  constexpr int64_t count() const { return count_; }
  auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) { return count_ += other.count_, *this; }
  constexpr Quantity& operator-=(Quantity other) { return count_ -= other.count_, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, int64_t n) { return Quantity(a.count_ * n); }

 private:
  int64_t count_ = 0;
};

using Bytes = Quantity<struct BytesTag>;
// Thousandths of one GPU's compute.
using MilliGpu = Quantity<struct MilliGpuTag>;

inline constexpr MilliGpu kWholeGpu{1000};

constexpr Bytes KiB(int64_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(int64_t n) { return Bytes(n << 20); }
constexpr Bytes GiB(int64_t n) { return Bytes(n << 30); }
constexpr int64_t ToMiB(Bytes bytes) { return bytes.count() >> 20; }

}  // namespace tessera
