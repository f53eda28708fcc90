// SPDX-License-Identifier: Apache-2.0
// The UID of a Kubernetes object as a type, so that it cannot be mixed up with a name or a node.
// Conversions between texts and UIDs are explicit. Not for UUIDs of GPUs.
//
// Threads: values. Cost: 24 bytes. The API server creates UUIDs, of which only the 128 bits are
// kept, so a table of hundreds of thousands of objects needs no texts.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <variant>

namespace tessera {

// Any text, ordered like a string. Empty if the UID is unknown.
class Uid {
 public:
  Uid() = default;
  explicit Uid(std::string_view text);

  std::string str() const;
  bool empty() const { return std::holds_alternative<std::monostate>(value_); }
  bool operator==(const Uid& other) const {
    return value_.index() == other.value_.index() && (*this <=> other) == 0;
  }
  std::strong_ordering operator<=>(const Uid& other) const;
  size_t Hash() const noexcept;

 private:
  // A UUID in lower case with its dashes, ordered like its text.
  struct Uuid {
    uint64_t high = 0, low = 0;
    static std::optional<Uuid> Parse(std::string_view text);
    auto operator<=>(const Uuid&) const = default;
  };

  // Nothing, a UUID, or another text.
  std::variant<std::monostate, Uuid, std::shared_ptr<const std::string>> value_;
};

// For messages of tests.
inline std::ostream& operator<<(std::ostream& out, const Uid& uid) { return out << uid.str(); }

}  // namespace tessera

template <>
struct std::hash<tessera::Uid> {
  // noexcept, because hash tables then store no hash with each entry.
  size_t operator()(const tessera::Uid& uid) const noexcept { return uid.Hash(); }
};

template <>
struct fmt::formatter<tessera::Uid> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const tessera::Uid& uid, Context& context) const {
    return fmt::formatter<std::string_view>::format(uid.str(), context);
  }
};
