// SPDX-License-Identifier: Apache-2.0
#include "src/base/uuid_text.h"

#include <algorithm>
#include <array>

namespace tessera {
namespace {

constexpr size_t kUuidLength = 36;
constexpr std::string_view kGpuPrefix = "GPU-", kMigPrefix = "MIG-";

// Only lower case, as the API server and the driver write it: "A" and "a" are different texts.
constexpr auto kDigits = [] {
  std::array<int8_t, 256> digits{};
  digits.fill(-1);
  for (int i = 0; i < 16; ++i) digits["0123456789abcdef"[i]] = static_cast<int8_t>(i);
  return digits;
}();

bool ReadDigits(std::string_view text, uint64_t* value) {
  int combined = 0;  // all digits combined by OR: negative if one of them is -1
  for (const char c : text) {
    const int digit = kDigits[static_cast<unsigned char>(c)];
    combined |= digit;
    *value = *value << 4 | static_cast<uint64_t>(digit);
  }
  return combined >= 0;
}

// Writes the `count` hexadecimal digits of `value` that start at bit `low_bit`, highest digit
// first.
char* WriteDigits(uint64_t value, int low_bit, int count, char* at) {
  for (int bit = low_bit + 4 * (count - 1); bit >= low_bit; bit -= 4) {
    *at++ = "0123456789abcdef"[value >> bit & 15];
  }
  return at;
}

}  // namespace

UuidText::UuidText(std::string_view text) {
  if (text.empty()) return;
  // Parse fails at once for a wrong length, so at most one of the calls reads the digits.
  Bits bits;
  if (Parse(text, &bits)) {
    value_ = Uuid{bits};
  } else if (text.starts_with(kGpuPrefix) && Parse(text.substr(kGpuPrefix.size()), &bits)) {
    value_ = GpuUuid{bits};
  } else if (text.starts_with(kMigPrefix) && Parse(text.substr(kMigPrefix.size()), &bits)) {
    value_ = MigUuid{bits};
  } else {
    value_ = std::make_shared<const std::string>(text);
  }
}

bool UuidText::Parse(std::string_view text, Bits* bits) {
  if (text.size() != kUuidLength) return false;
  if (text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-') return false;
  return ReadDigits(text.substr(0, 8), &bits->high) && ReadDigits(text.substr(9, 4), &bits->high) &&
         ReadDigits(text.substr(14, 4), &bits->high) &&
         ReadDigits(text.substr(19, 4), &bits->low) && ReadDigits(text.substr(24), &bits->low);
}

const UuidText::Bits* UuidText::bits() const noexcept {
  if (const auto* uuid = std::get_if<Uuid>(&value_)) return uuid;
  if (const auto* gpu = std::get_if<GpuUuid>(&value_)) return gpu;
  return std::get_if<MigUuid>(&value_);
}

std::string UuidText::str() const {
  const Bits* uuid = bits();
  if (uuid == nullptr) {
    const auto* text = std::get_if<std::shared_ptr<const std::string>>(&value_);
    return text == nullptr ? std::string() : **text;
  }
  std::array<char, kGpuPrefix.size() + kUuidLength> text;
  char* at = text.data();
  if (std::holds_alternative<GpuUuid>(value_)) at = std::ranges::copy(kGpuPrefix, at).out;
  if (std::holds_alternative<MigUuid>(value_)) at = std::ranges::copy(kMigPrefix, at).out;
  at = WriteDigits(uuid->high, 32, 8, at);
  *at++ = '-';
  at = WriteDigits(uuid->high, 16, 4, at);
  *at++ = '-';
  at = WriteDigits(uuid->high, 0, 4, at);
  *at++ = '-';
  at = WriteDigits(uuid->low, 48, 4, at);
  *at++ = '-';
  at = WriteDigits(uuid->low, 0, 12, at);
  return {text.data(), at};
}

std::strong_ordering UuidText::operator<=>(const UuidText& other) const {
  const Bits *a = bits(), *b = other.bits();
  if (a != nullptr && b != nullptr && value_.index() == other.value_.index()) return *a <=> *b;
  return str() <=> other.str();
}

size_t UuidText::Hash() const noexcept {
  if (const Bits* uuid = bits()) return uuid->high ^ uuid->low * 0x9E3779B97F4A7C15;
  const auto* text = std::get_if<std::shared_ptr<const std::string>>(&value_);
  return text == nullptr ? 0 : std::hash<std::string>()(**text);
}

}  // namespace tessera
