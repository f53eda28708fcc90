// SPDX-License-Identifier: Apache-2.0
// The UID of a Kubernetes object as a type, so that it cannot be mixed up with a name or a node.
// Conversions between texts and UIDs are explicit. UUIDs of GPUs are not Uids.
//
// Threads: any number, on separate objects. Cost: 24 bytes, because the API server creates UUIDs
// (uuid_text.h).
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "src/base/uuid_text.h"

namespace tessera {

// Any text, ordered like a string. Empty if the UID is unknown.
class Uid {
 public:
  Uid() = default;
  explicit Uid(std::string_view text) : text_(text) {}

  std::string str() const { return text_.str(); }
  bool empty() const { return text_.empty(); }
  auto operator<=>(const Uid&) const = default;
  size_t Hash() const noexcept { return text_.Hash(); }

 private:
  UuidText text_;
};

// For failure messages of tests.
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
