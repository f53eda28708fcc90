// SPDX-License-Identifier: Apache-2.0
// The UID of a Kubernetes object as a type, so that it cannot be mixed up with a name, a node or a
// digest. Conversions between texts and UIDs are explicit. Not for UUIDs of GPUs.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

// Any text, ordered like a string. Empty if the UID is unknown.
class Uid {
 public:
  Uid() = default;
  explicit Uid(std::string text) : text_(std::move(text)) {}
  explicit Uid(std::string_view text) : text_(text) {}
  explicit Uid(const char* text) : text_(text) {}

  const std::string& str() const { return text_; }
  std::string_view view() const { return text_; }
  bool empty() const { return text_.empty(); }
  auto operator<=>(const Uid&) const = default;

 private:
  std::string text_;
};

// For messages of tests.
inline std::ostream& operator<<(std::ostream& out, const Uid& uid) { return out << uid.str(); }

}  // namespace tessera

template <>
struct std::hash<tessera::Uid> {
  size_t operator()(const tessera::Uid& uid) const noexcept {
    return std::hash<std::string_view>()(uid.view());
  }
};

template <>
struct fmt::formatter<tessera::Uid> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const tessera::Uid& uid, Context& context) const {
    return fmt::formatter<std::string_view>::format(uid.view(), context);
  }
};
