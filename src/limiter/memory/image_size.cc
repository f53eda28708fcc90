// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/memory/image_size.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

namespace tessera::limiter {
namespace {

constexpr uint32_t kFatBinary = 0xba55ed50, kFatBinaryWrapper = 0x466243b1;
// More than the memory of any GPU.
constexpr uint64_t kMaxBytes = uint64_t(1) << 48;

uint64_t SaturatedProduct(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  const bool too_large = __builtin_mul_overflow(a, b, &product) || product > kMaxBytes;
  return too_large ? kMaxBytes : product;
}

// Returns the size of the sections .nv.global (zeros) and .nv.global.init together.
uint64_t CubinBytes(const char* image, size_t max_image_bytes) {
  Elf64_Ehdr header;
  if (max_image_bytes < sizeof(header)) return 0;
  ::memcpy(&header, image, sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) return 0;
  const uint64_t table_bytes = uint64_t(header.e_shnum) * sizeof(Elf64_Shdr);
  if (header.e_shoff > max_image_bytes || table_bytes > max_image_bytes - header.e_shoff) return 0;
  if (header.e_shstrndx >= header.e_shnum) return 0;
  const auto section_at = [&](uint32_t i) {
    Elf64_Shdr section;
    ::memcpy(&section, image + header.e_shoff + i * sizeof(section), sizeof(section));
    return section;
  };
  const Elf64_Shdr names = section_at(header.e_shstrndx);
  if (names.sh_offset > max_image_bytes || names.sh_size > max_image_bytes - names.sh_offset)
    return 0;
  constexpr char kPrefix[] = ".nv.global";
  uint64_t sum = 0;
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr section = section_at(i);
    if (section.sh_name >= names.sh_size || names.sh_size - section.sh_name < sizeof(kPrefix))
      continue;
    const char* const name = image + names.sh_offset + section.sh_name;
    if (::strncmp(name, kPrefix, sizeof(kPrefix) - 1) != 0) continue;
    sum += section.sh_size < kMaxBytes ? section.sh_size : kMaxBytes;
  }
  return sum < kMaxBytes ? sum : kMaxBytes;
}

// Reads PTX text word by word. Each punctuation character is a separate word.
class PtxWords {
 public:
  PtxWords(const char* text, size_t max_image_bytes)
      : position_(text), end_(max_image_bytes == SIZE_MAX ? nullptr : text + max_image_bytes) {}

  // False: the end of the text.
  bool Next() {
    SkipBlanks();
    if (IsAtEnd()) return false;
    word_ = position_;
    if (IsPunctuation(*position_)) {
      ++position_;
    } else {
      while (!IsAtEnd() && !IsPunctuation(*position_) && !IsBlank(*position_)) ++position_;
    }
    length_ = size_t(position_ - word_);
    return true;
  }
  bool Is(const char* word) const {
    return ::strlen(word) == length_ && ::memcmp(word, word_, length_) == 0;
  }
  char first() const { return *word_; }
  char second() const { return length_ > 1 ? word_[1] : '\0'; }
  // The number at the start of the word, or with `skip_prefix` the first number in it; 0: none.
  uint64_t Number(bool skip_prefix) const {
    size_t i = 0;
    while (skip_prefix && i < length_ && (word_[i] < '0' || word_[i] > '9')) ++i;
    char copy[24] = {};
    for (size_t k = 0; i < length_ && k + 1 < sizeof(copy); ++i, ++k) copy[k] = word_[i];
    return ::strtoull(copy, nullptr, 0);
  }
  // The number of values in the type: 2 for types such as .f16x2.
  uint64_t PackedCount() const {
    return length_ > 3 && word_[length_ - 2] == 'x' ? uint64_t(word_[length_ - 1] - '0') : 1;
  }

 private:
  static bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  static bool IsPunctuation(char c) { return c != 0 && ::strchr(";{}[],=()", c) != nullptr; }
  bool IsAtEnd() const { return position_ == end_ || *position_ == 0; }
  bool StartsWith(const char* mark) const {
    return position_[0] == mark[0] && position_ + 1 != end_ && position_[1] == mark[1];
  }
  void SkipBlanks() {
    while (!IsAtEnd()) {
      if (IsBlank(*position_)) {
        ++position_;
      } else if (StartsWith("//")) {
        while (!IsAtEnd() && *position_ != '\n') ++position_;
      } else if (StartsWith("/*")) {
        position_ += 2;
        while (!IsAtEnd() && !StartsWith("*/")) ++position_;
        if (!IsAtEnd()) position_ += 2;
      } else {
        return;
      }
    }
  }

  const char* position_;
  const char* const end_;  // null: a zero ends the text
  const char* word_ = nullptr;
  size_t length_ = 0;
};

// Reads the rest of a statement after .global, for example ".align 4 .v2 .b8 name[2][3], other",
// and returns the bytes of its variables.
uint64_t StatementBytes(PtxWords* words) {
  uint64_t element_bytes = 0, lanes = 1, sum = 0, variable_bytes = 0;
  while (words->Next() && words->first() != ';' && words->first() != '=') {
    if (words->Is(".align")) {
      (void)words->Next();
    } else if (words->first() == '[') {
      const bool has_size = words->Next() && words->first() != ']';
      variable_bytes =
          has_size ? SaturatedProduct(variable_bytes, words->Number(/*skip_prefix=*/false)) : 0;
    } else if (words->first() == '(') {
      while (words->Next() && words->first() != ')') {
      }
    } else if (words->first() == '.' && words->second() == 'v') {
      lanes = words->Number(/*skip_prefix=*/true);
    } else if (words->first() == '.' && words->Number(/*skip_prefix=*/true) != 0) {
      element_bytes =
          SaturatedProduct(words->Number(/*skip_prefix=*/true) / 8 * words->PackedCount(), lanes);
    } else if (words->first() != ']' && words->first() != ',' && words->first() != '.') {
      sum += variable_bytes;
      variable_bytes = element_bytes;
    }
  }
  sum += variable_bytes;
  return sum < kMaxBytes ? sum : kMaxBytes;
}

uint64_t PtxBytes(const char* text, size_t max_image_bytes) {
  PtxWords words(text, max_image_bytes);
  uint64_t sum = 0;
  bool is_extern = false;  // the statement names a variable of another module
  while (words.Next() && sum < kMaxBytes) {
    if (words.first() == ';' || words.first() == '{' || words.first() == '}') is_extern = false;
    is_extern |= words.Is(".extern");
    if (words.Is(".global") && !is_extern) sum += StatementBytes(&words);
  }
  return sum < kMaxBytes ? sum : kMaxBytes;
}

}  // namespace

uint64_t VariableBytesOf(const void* image, size_t max_image_bytes) {
  uint32_t magic = 0;
  if (image == nullptr || max_image_bytes < sizeof(magic)) return 0;
  const auto* bytes = static_cast<const char*>(image);
  // PTX text may be shorter than the magic number.
  for (size_t i = 0; i < sizeof(magic); ++i) {
    magic |= uint32_t(uint8_t(bytes[i])) << 8 * i;
    if (bytes[i] == 0) break;
  }
  if (magic == kFatBinary || magic == kFatBinaryWrapper) return 0;
  if (::memcmp(&magic, ELFMAG, SELFMAG) == 0) return CubinBytes(bytes, max_image_bytes);
  return PtxBytes(bytes, max_image_bytes);
}

}  // namespace tessera::limiter
