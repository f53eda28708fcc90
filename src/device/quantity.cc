// SPDX-License-Identifier: Apache-2.0
#include "src/device/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string>

#include "src/base/strings.h"

namespace tessera::device {
namespace {

// The API server writes at most 20 digits. Rejects a longer text, because the time of the
// arithmetic below grows with the length.
constexpr size_t kMaxLength = 128;
// Kubernetes keeps nine digits after the decimal point.
constexpr int kNanoDigits = 9;
// With at most kMaxLength digits, 10^±1000 is outside the range of int64.
constexpr int64_t kFarExponent = 1000;

struct Suffix {
  std::string_view text;
  int decimal = 0;  // exponent of ten
  int binary = 0;   // exponent of two
};
constexpr std::array<Suffix, 16> kSuffixes = {{
    {"", 0, 0},
    {"n", -9, 0},
    {"u", -6, 0},
    {"m", -3, 0},
    {"k", 3, 0},
    {"M", 6, 0},
    {"G", 9, 0},
    {"T", 12, 0},
    {"P", 15, 0},
    {"E", 18, 0},
    {"Ki", 0, 10},
    {"Mi", 0, 20},
    {"Gi", 0, 30},
    {"Ti", 0, 40},
    {"Pi", 0, 50},
    {"Ei", 0, 60},
}};

// digits × 10^exponent, exact. `digits` has no leading zero; empty is zero.
struct Decimal {
  std::string digits;
  int64_t exponent = 0;
  bool negative = false;
};

void DropLeadingZeros(std::string* digits) {
  digits->erase(0, std::min(digits->find_first_not_of('0'), digits->size()));
}

void Double(std::string* digits) {
  int carry = 0;
  for (size_t i = digits->size(); i-- > 0;) {
    const int value = ((*digits)[i] - '0') * 2 + carry;
    (*digits)[i] = static_cast<char>('0' + value % 10);
    carry = value / 10;
  }
  if (carry != 0) digits->insert(digits->begin(), '1');
}

// Adds 1 to the last digit.
void Increment(std::string* digits) {
  for (size_t i = digits->size(); i-- > 0;) {
    if ((*digits)[i] != '9') {
      ++(*digits)[i];
      return;
    }
    (*digits)[i] = '0';
  }
  digits->insert(digits->begin(), '1');
}

std::optional<Suffix> ParseSuffix(std::string_view text) {
  const auto known = std::find_if(kSuffixes.begin(), kSuffixes.end(),
                                  [&](const Suffix& suffix) { return suffix.text == text; });
  if (known != kSuffixes.end()) return *known;
  if (text.size() < 2 || (text[0] != 'e' && text[0] != 'E')) return std::nullopt;
  text.remove_prefix(1);
  // Go's ParseInt accepts a plus sign, from_chars does not.
  if (text[0] == '+') {
    text.remove_prefix(1);
    if (text.empty() || !IsDigit(text[0])) return std::nullopt;
  }
  int64_t exponent = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, exponent);
  if (error != std::errc() || stop != end) return std::nullopt;
  return Suffix{"e", static_cast<int>(std::clamp(exponent, -kFarExponent, kFarExponent)), 0};
}

// nullopt if `text` is not a quantity.
std::optional<Decimal> ParseDecimal(std::string_view text) {
  Decimal value;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    value.negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const size_t whole = std::find_if_not(text.begin(), text.end(), IsDigit) - text.begin();
  value.digits = text.substr(0, whole);
  text.remove_prefix(whole);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const size_t places = std::find_if_not(text.begin(), text.end(), IsDigit) - text.begin();
    value.digits += text.substr(0, places);
    value.exponent = -static_cast<int64_t>(places);
    text.remove_prefix(places);
  }
  if (value.digits.empty()) return std::nullopt;
  const std::optional<Suffix> suffix = ParseSuffix(text);
  if (!suffix) return std::nullopt;
  DropLeadingZeros(&value.digits);
  for (int i = 0; i < suffix->binary; ++i) Double(&value.digits);
  value.exponent += suffix->decimal;
  return value;
}

// Rounds away from zero to a multiple of 10^exponent, so that a tiny request is not zero.
void RoundUp(int64_t exponent, Decimal* value) {
  if (value->exponent >= exponent || value->digits.empty()) return;
  const auto excess = static_cast<size_t>(exponent - value->exponent);
  const size_t cut = std::min(excess, value->digits.size());
  const bool exact =
      value->digits.find_first_not_of('0', value->digits.size() - cut) == std::string::npos;
  value->digits.erase(value->digits.size() - cut);
  if (!exact) Increment(&value->digits);
  value->exponent = exponent;
}

// Moves the exponent to 0 if all digits after the decimal point are zeros.
bool MakeWhole(Decimal* value) {
  while (value->exponent < 0 && !value->digits.empty()) {
    if (value->digits.back() != '0') return false;
    value->digits.pop_back();
    ++value->exponent;
  }
  return true;
}

std::optional<int64_t> ToInt(const Decimal& value) {
  if (value.digits.empty()) return 0;
  const std::string text = value.digits + std::string(static_cast<size_t>(value.exponent), '0');
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

// Parses a non-negative quantity and rounds it up to nano.
Result<Decimal> ParseQuantity(std::string_view text) {
  std::optional<Decimal> value;
  if (text.size() <= kMaxLength) value = ParseDecimal(text);
  if (!value) {
    return Error(Code::kInvalidArgument, "\"{}\" is not a quantity like 2, 2k or 1Gi",
                 text.substr(0, kMaxLength));
  }
  if (value->negative && !value->digits.empty()) {
    return Error(Code::kInvalidArgument, "\"{}\" is negative", text);
  }
  RoundUp(-kNanoDigits, &*value);
  return *std::move(value);
}

Result<int64_t> ToIntOrError(const Decimal& value, std::string_view text) {
  const std::optional<int64_t> number = ToInt(value);
  if (number) return *number;
  return Error(Code::kInvalidArgument, "\"{}\" is more than {}", text,
               std::numeric_limits<int64_t>::max());
}

}  // namespace

Result<int64_t> ParseWholeQuantity(std::string_view text) {
  ASSIGN_OR_RETURN(Decimal value, ParseQuantity(text));
  if (!MakeWhole(&value)) {
    return Error(Code::kInvalidArgument, "\"{}\" is not a whole number", text);
  }
  return ToIntOrError(value, text);
}

Result<MilliCpu> ParseCpu(std::string_view text) {
  ASSIGN_OR_RETURN(Decimal value, ParseQuantity(text));
  value.exponent += 3;
  RoundUp(0, &value);
  ASSIGN_OR_RETURN(const int64_t milli, ToIntOrError(value, text));
  return MilliCpu(milli);
}

Result<Bytes> ParseMemory(std::string_view text) {
  ASSIGN_OR_RETURN(Decimal value, ParseQuantity(text));
  RoundUp(0, &value);
  ASSIGN_OR_RETURN(const int64_t bytes, ToIntOrError(value, text));
  return Bytes(bytes);
}

}  // namespace tessera::device
