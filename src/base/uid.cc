// SPDX-License-Identifier: Apache-2.0
#include "src/base/uid.h"

#include <functional>

#include "src/base/strings.h"

namespace tessera {
namespace {

constexpr size_t kUuidLength = 36;

bool IsDash(size_t position) {
  return position == 8 || position == 13 || position == 18 || position == 23;
}

}  // namespace

Uid::Uid(std::string_view text) {
  if (text.empty()) return;
  if (const std::optional<Uuid> uuid = Uuid::Parse(text)) {
    value_ = *uuid;
  } else {
    value_ = std::make_shared<const std::string>(text);
  }
}

std::optional<Uid::Uuid> Uid::Uuid::Parse(std::string_view text) {
  if (text.size() != kUuidLength) return std::nullopt;
  Uuid uuid;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsDash(i)) {
      if (text[i] != '-') return std::nullopt;
      continue;
    }
    const int digit = HexDigit(text[i]);
    // Only lower case, as the API server writes it: UIDs with "A" and "a" are different.
    if (digit < 0 || (text[i] >= 'A' && text[i] <= 'F')) return std::nullopt;
    uuid.high = uuid.high << 4 | uuid.low >> 60;
    uuid.low = uuid.low << 4 | static_cast<uint64_t>(digit);
  }
  return uuid;
}

std::string Uid::str() const {
  if (const auto* uuid = std::get_if<Uuid>(&value_)) {
    return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", uuid->high >> 32,
                       uuid->high >> 16 & 0xFFFF, uuid->high & 0xFFFF, uuid->low >> 48,
                       uuid->low & 0xFFFF'FFFF'FFFF);
  }
  const auto* text = std::get_if<std::shared_ptr<const std::string>>(&value_);
  return text == nullptr ? std::string() : **text;
}

std::strong_ordering Uid::operator<=>(const Uid& other) const {
  const auto* a = std::get_if<Uuid>(&value_);
  const auto* b = std::get_if<Uuid>(&other.value_);
  if (a != nullptr && b != nullptr) return *a <=> *b;
  return str() <=> other.str();
}

size_t Uid::Hash() const noexcept {
  if (const auto* uuid = std::get_if<Uuid>(&value_)) {
    return uuid->high ^ uuid->low * 0x9E3779B97F4A7C15;
  }
  const auto* text = std::get_if<std::shared_ptr<const std::string>>(&value_);
  return text == nullptr ? 0 : std::hash<std::string>()(**text);
}

}  // namespace tessera
