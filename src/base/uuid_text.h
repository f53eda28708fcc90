// SPDX-License-Identifier: Apache-2.0
// A text that usually is a UUID: the UID of an object, or the UUID of a GPU or MIG slice. A UUID is
// stored as its 128 bits, so a table of hundreds of thousands of UUIDs needs no strings.
//
// Threads: any number, on separate objects. Cost: 24 bytes; a text that is not a UUID is allocated
// once and shared by copies.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <variant>

namespace tessera {

// Any text, ordered like a string. Conversions from and to texts are explicit.
class UuidText {
 public:
  UuidText() = default;
  explicit UuidText(std::string_view text);

  std::string str() const;
  bool empty() const { return std::holds_alternative<std::monostate>(value_); }
  bool operator==(const UuidText& other) const {
    return value_.index() == other.value_.index() && (*this <=> other) == 0;
  }
  std::strong_ordering operator<=>(const UuidText& other) const;
  size_t Hash() const noexcept;

 private:
  // A UUID in lower case with its dashes, ordered like its text.
  struct Bits {
    uint64_t high = 0, low = 0;
    auto operator<=>(const Bits&) const = default;
  };
  struct Uuid : Bits {};
  struct GpuUuid : Bits {};  // after the prefix "GPU-"
  struct MigUuid : Bits {};  // after the prefix "MIG-"

  static bool Parse(std::string_view text, Bits* bits);
  // Null if the text is not a UUID.
  const Bits* bits() const noexcept;

  std::variant<std::monostate, Uuid, GpuUuid, MigUuid, std::shared_ptr<const std::string>> value_;
};

// For failure messages of tests.
inline std::ostream& operator<<(std::ostream& out, const UuidText& text) {
  return out << text.str();
}

}  // namespace tessera

template <>
struct std::hash<tessera::UuidText> {
  // noexcept, because hash tables then store no hash with each entry.
  size_t operator()(const tessera::UuidText& text) const noexcept { return text.Hash(); }
};
