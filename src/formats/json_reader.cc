// SPDX-License-Identifier: Apache-2.0
#include "src/formats/json_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Characters of numbers, true, false and null.
bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' ||
         c == 'E';
}

// Characters that end a run of plain characters in a string.
constexpr std::array<bool, 256> kSpecial = [] {
  std::array<bool, 256> special{};
  for (size_t c = 0; c < 0x20; ++c) special[c] = true;
  special['"'] = special['\\'] = true;
  return special;
}();
bool IsSpecial(char c) { return kSpecial[static_cast<unsigned char>(c)]; }

}  // namespace

void JsonReader::Fail(std::string_view expected) {
  if (!status_.ok()) return;
  status_ =
      at_ >= text_.size()
          ? Error(Code::kInvalidArgument, "JSON ends at byte {} where {} should be", at_, expected)
          : Error(Code::kInvalidArgument, "JSON at byte {}: expected {}", at_, expected);
}

void JsonReader::FailTooDeep() {
  if (!status_.ok()) return;
  status_ = Error(Code::kInvalidArgument, "JSON at byte {}: nested deeper than {}", at_, kMaxDepth);
}

void JsonReader::SkipSpace() {
  while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
}

char JsonReader::Peek() {
  if (!status_.ok()) return 0;
  SkipSpace();
  return at_ < text_.size() ? text_[at_] : 0;
}

Status JsonReader::Finish() {
  if (Peek() != 0) Fail("nothing more");
  if (status_.ok() && depth_ > 0) Fail("']' or '}'");
  return status_;
}

bool JsonReader::TakeNull() {
  if (Peek() != 'n' || text_.substr(at_, 4) != "null") return false;
  at_ += 4;
  return true;
}

bool JsonReader::Begin(char bracket, std::string_view expected) {
  if (Peek() != bracket) return Fail(expected), false;
  if (++depth_ > kMaxDepth) return FailTooDeep(), false;
  ++at_;
  first_ = true;
  return true;
}

bool JsonReader::NextElement(char close) {
  const char next = Peek();
  if (!status_.ok()) return false;
  const bool first = std::exchange(first_, false);
  if (next == close) {
    ++at_;
    --depth_;
    return false;
  }
  if (first) return next != 0 || (Fail("a value"), false);
  if (next != ',') return Fail(close == '}' ? "',' or '}'" : "',' or ']'"), false;
  ++at_;
  return true;
}

bool JsonReader::NextMember(std::string_view* key) {
  if (!NextElement('}')) return false;
  *key = String();
  if (Peek() != ':') return Fail("':'"), false;
  ++at_;
  return true;
}

bool JsonReader::NextItem() { return NextElement(']'); }

bool JsonReader::ScanString(bool* escaped) {
  // Local copies are faster, and most of the time is spent in this loop.
  const char* const data = text_.data();
  const size_t size = text_.size();
  size_t at = at_;
  for (;; at += 2) {
    while (at < size && !IsSpecial(data[at])) ++at;
    if (at >= size || data[at] != '\\') break;
    *escaped = true;
  }
  at_ = std::min(at, size);
  if (at < size && data[at] == '"') return ++at_, true;
  return Fail("the end of a string"), false;
}

std::string_view JsonReader::String(std::string_view* as_quoted) {
  if (Peek() != '"') return Fail("a string"), std::string_view();
  const size_t begin = at_++;
  bool escaped = false;
  if (!ScanString(&escaped)) return {};
  const std::string_view quoted(text_.data() + begin, at_ - begin);
  if (as_quoted != nullptr) *as_quoted = quoted;
  if (!escaped) return {quoted.data() + 1, quoted.size() - 2};
  const Result<Json> parsed = ParseJson(quoted);
  if (!parsed.ok()) return at_ = begin, Fail("a string"), std::string_view();
  return unescaped_strings_->emplace_back(parsed->string_value());
}

void JsonReader::Strings(size_t max_items, std::vector<std::string_view>* out,
                         std::vector<std::string_view>* quoted) {
  const char* const data = text_.data();
  while (NextItem()) {
    if (out->size() == max_items) return Fail(fmt::format("no more than {} strings", max_items));
    out->push_back(String(&quoted->emplace_back()));
    // Fast path for strings without white space or escapes between or in them.
    size_t at = at_;
    while (at + 1 < text_.size() && data[at] == ',' && data[at + 1] == '"' &&
           out->size() < max_items) {
      size_t end = at + 2;
      while (end < text_.size() && !IsSpecial(data[end])) ++end;
      if (end == text_.size() || data[end] != '"') break;
      quoted->emplace_back(data + at + 1, end - at);
      out->emplace_back(data + at + 2, end - at - 2);
      at = end + 1;
    }
    if (status_.ok()) at_ = at;
  }
}

bool JsonReader::ScanWord() {
  const size_t begin = at_;
  while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
  return at_ > begin || (Fail("a value"), false);
}

int64_t JsonReader::Int() {
  Peek();
  const size_t begin = at_;
  if (!status_.ok() || !ScanWord()) return 0;
  const Result<int64_t> number = ParseInt(text_.substr(begin, at_ - begin));
  if (!number.ok()) at_ = begin, Fail("a whole number");
  return number.value_or(0);
}

std::string_view JsonReader::Skip() {
  Peek();
  if (!status_.ok()) return {};
  const size_t begin = at_;
  std::string open;  // the closing brackets that are still missing
  do {
    switch (Peek()) {
      case '{':
      case '[':
        if (depth_ + open.size() >= kMaxDepth) return FailTooDeep(), std::string_view();
        open += text_[at_++] == '{' ? '}' : ']';
        break;
      case '}':
      case ']':
        if (open.empty() || open.back() != text_[at_]) return Fail("a value"), std::string_view();
        open.pop_back();
        ++at_;
        break;
      case ',':
      case ':':
        if (open.empty()) return Fail("a value"), std::string_view();
        ++at_;
        break;
      case '"': {
        bool escaped = false;
        ++at_;
        if (!ScanString(&escaped)) return {};
        break;
      }
      default:
        if (!ScanWord()) return {};
    }
  } while (!open.empty());
  return text_.substr(begin, at_ - begin);
}

}  // namespace tessera
