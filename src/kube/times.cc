// SPDX-License-Identifier: Apache-2.0
#include "src/kube/times.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

namespace tessera::kube {
namespace {

// Parses a text from its front.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  std::optional<int> Digits(size_t count) {
    if (text_.size() < count) return std::nullopt;
    int value = 0;
    for (const char c : text_.substr(0, count)) {
      if (c < '0' || c > '9') return std::nullopt;
      value = value * 10 + (c - '0');
    }
    text_.remove_prefix(count);
    return value;
  }
  bool Take(char c) {
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  // Parses "Y-M-D" or "h:m:s": three numbers with separators.
  bool ThreeNumbers(size_t first_digits, char separator, int* a, int* b, int* c) {
    const auto x = Digits(first_digits);
    const bool first_separator = Take(separator);
    const auto y = Digits(2);
    const bool second_separator = Take(separator);
    const auto z = Digits(2);
    if (!x || !first_separator || !y || !second_separator || !z) return false;
    *a = *x;
    *b = *y;
    *c = *z;
    return true;
  }
  // Parses ".123" as nanoseconds; 0 without a point.
  std::optional<int64_t> Fraction() {
    if (!Take('.')) return 0;
    int64_t nanos = 0;
    int64_t weight = 100'000'000;
    int digits = 0;
    for (; !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; text_.remove_prefix(1), ++digits) {
      nanos += (text_[0] - '0') * weight;
      weight /= 10;
    }
    if (digits == 0) return std::nullopt;
    return nanos;
  }
  // Parses "Z" or "+08:00": the offset to subtract to get UTC.
  std::optional<std::chrono::minutes> Offset() {
    if (Take('Z') || Take('z')) return std::chrono::minutes(0);
    const int sign = Take('+') ? 1 : Take('-') ? -1 : 0;
    const auto hours = Digits(2);
    if (sign == 0 || !hours || !Take(':')) return std::nullopt;
    const auto minutes = Digits(2);
    if (!minutes || *hours > 23 || *minutes > 59) return std::nullopt;
    return std::chrono::minutes(sign * (*hours * 60 + *minutes));
  }
  bool done() const { return text_.empty(); }

 private:
  std::string_view text_;
};

std::optional<WallTime> Parse(std::string_view text) {
  Cursor cursor(text);
  int year, month, day, hour, minute, second;
  if (!cursor.ThreeNumbers(4, '-', &year, &month, &day)) return std::nullopt;
  if (!cursor.Take('T') && !cursor.Take('t')) return std::nullopt;
  if (!cursor.ThreeNumbers(2, ':', &hour, &minute, &second)) return std::nullopt;
  const auto fraction = cursor.Fraction();
  const auto offset = cursor.Offset();
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  // 64-bit nanoseconds cover the years 1678 to 2261.
  if (!date.ok() || year < 1700 || year > 2200 || hour > 23 || minute > 59 || second > 60) {
    return std::nullopt;
  }
  if (!fraction || !offset || !cursor.done()) return std::nullopt;
  return WallTime(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second) + Duration(*fraction) -
         *offset;
}

}  // namespace

Result<WallTime> ParseRfc3339(std::string_view text) {
  if (const auto time = Parse(text)) return *time;
  return Error(Code::kInvalidArgument, "\"{}\" is not a time such as 2026-01-31T23:59:59Z", text);
}

// MicroTime is parsed with exactly six decimals (RFC3339Micro in k8s.io/apimachinery,
// pkg/apis/meta/v1/micro_time.go).
std::string Rfc3339Micros(WallTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time - whole).count();
  std::string text = Rfc3339(whole);
  text.pop_back();
  return fmt::format("{}.{:06}Z", text, micros);
}

}  // namespace tessera::kube
