// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/module/image.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tessera::cuda {
namespace {

constexpr uint32_t kFatBinaryWrapperMagic = 0x466243B1;

// Splits PTX into words. Comments count as space; punctuation and quoted strings are words.
class PtxTokenizer {
 public:
  explicit PtxTokenizer(std::string_view text) : rest_(text) {}

  // The next word; empty at the end.
  std::string_view Next() {
    SkipSpace();
    if (rest_.empty()) return {};
    size_t length = 1;
    if (rest_[0] == '"') {
      length = std::min(rest_.find('"', 1), rest_.size() - 1) + 1;
    } else if (IsWord(rest_[0])) {
      while (length < rest_.size() && IsWord(rest_[length])) ++length;
    }
    const std::string_view word = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return word;
  }

 private:
  static bool IsWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.' ||
           c == '%';
  }

  void SkipTo(std::string_view end) {
    const size_t at = rest_.find(end);
    rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at + end.size());
  }

  void SkipSpace() {
    while (!rest_.empty()) {
      if (rest_.starts_with("//"))
        SkipTo("\n");
      else if (rest_.starts_with("/*"))
        SkipTo("*/");
      else if (std::isspace(static_cast<unsigned char>(rest_[0])))
        rest_.remove_prefix(1);
      else
        return;
    }
  }

  std::string_view rest_;
};

// The decimal number at the beginning of the text; 0: none.
uint32_t LeadingNumber(std::string_view text) {
  uint32_t value = 0;
  for (char c : text) {
    if (!std::isdigit(static_cast<unsigned char>(c))) break;
    value = value * 10 + uint32_t(c - '0');
  }
  return value;
}

// Converts "8.3" to 83.
int VersionOf(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return 0;
  return int(LeadingNumber(text) * 10 + LeadingNumber(text.substr(dot + 1)));
}

// Size of a type such as ".u64" in bytes; 0: not a type.
uint32_t SizeOfType(std::string_view type) {
  if (type == ".pred") return 1;
  if (type.size() < 3 || type[0] != '.' || !std::strchr("busf", type[1])) return 0;
  return LeadingNumber(type.substr(2)) / 8;
}

// An integer of PTX: decimal, hexadecimal (0x), octal (0) or binary (0b). 0: no integer.
uint64_t IntegerOf(std::string_view word) {
  if (word.empty() || std::isdigit(static_cast<unsigned char>(word[0])) == 0) return 0;
  const bool binary = word.size() > 2 && word[0] == '0' && (word[1] == 'b' || word[1] == 'B');
  if (binary) return std::strtoull(std::string(word.substr(2)).c_str(), nullptr, 2);
  return std::strtoull(std::string(word).c_str(), nullptr, 0);
}

// Reads a parameter such as ".param .align 8 .b8 name[16]", up to ',' or ')', which it returns.
std::string_view ReadParameter(PtxTokenizer* words, Parameter* parameter) {
  uint32_t size = 0, align = 0, count = 1;
  bool after_ptr = false;  // after .ptr, .align is the alignment of the target
  std::string_view word = words->Next();
  for (; !word.empty() && word != "," && word != ")"; word = words->Next()) {
    if (word == ".align" && after_ptr)
      words->Next();
    else if (word == ".align")
      align = LeadingNumber(words->Next());
    else if (word == "[")
      count = uint32_t(IntegerOf(words->Next()));
    else if (word == ".ptr")
      after_ptr = true;
    else if (size == 0)
      size = SizeOfType(word);
  }
  parameter->size = size * count;
  parameter->offset = align != 0 ? align : size;  // alignment, until LayOutParameters
  return word;
}

void LayOutParameters(Entry* entry) {
  uint32_t offset = 0;
  entry->parameters_known = true;
  for (Parameter& parameter : entry->parameters) {
    const uint32_t align = parameter.offset == 0 ? 1 : parameter.offset;
    if (parameter.size == 0) entry->parameters_known = false;
    offset = (offset + align - 1) / align * align;
    parameter.offset = offset;
    offset += parameter.size;
  }
}

Entry ReadEntry(PtxTokenizer* words) {
  Entry entry;
  entry.name = words->Next();
  std::string_view word = words->Next();
  while (word == "(" || word == ",") {
    Parameter parameter;
    word = ReadParameter(words, &parameter);
    if (parameter.size != 0 || word == ",") entry.parameters.push_back(parameter);
  }
  LayOutParameters(&entry);
  return entry;
}

// The newest PTX version of a CUDA version: CUDA 12.0 introduced PTX 8.0, and 11.0 introduced 7.0.
int NewestPtx(int cuda_version) {
  const int major = cuda_version / 1000, minor = cuda_version % 1000 / 10;
  return major >= 13 ? 90 + minor : major == 12 ? 80 + minor : major == 11 ? 70 + minor : 65;
}

// The bits of an element: an integer, or a float ("0f3F800000", "0d" and 16 digits). Zero if the
// element is the address of another variable, because addresses are not known yet.
uint64_t ElementOf(std::string_view word) {
  if (word.size() > 2 && word[0] == '0' && std::strchr("fFdD", word[1]) != nullptr) {
    return std::strtoull(std::string(word.substr(2)).c_str(), nullptr, 16);
  }
  return IntegerOf(word);
}

// Reads an initial value after '=', up to ';': "7", "{1, -2}", "generic(other)", "other+8".
void ReadInitial(PtxTokenizer* words, uint32_t element_bytes, std::string* initial) {
  bool negative = false, offset = false;
  for (std::string_view word = words->Next(); !word.empty() && word != ";"; word = words->Next()) {
    if (word == "-") negative = true;
    if (word == "+") offset = true;
    const bool element = std::isalnum(static_cast<unsigned char>(word[0])) || word[0] == '_' ||
                         word[0] == '$' || word[0] == '%';
    if (!element || word == "generic") continue;
    const uint64_t value = negative ? 0 - ElementOf(word) : ElementOf(word);
    if (!offset) {
      initial->append(reinterpret_cast<const char*>(&value), std::min<size_t>(element_bytes, 8));
    }
    negative = offset = false;
  }
}

// Reads a variable after ".global" or ".const", up to ';': ".align 4 .b8 name[16] = {1, 2}".
Global ReadGlobal(PtxTokenizer* words) {
  Global global;
  uint32_t element = 0, vector = 1;
  uint64_t count = 1;
  bool unsized = false;
  std::string_view word = words->Next();
  for (; !word.empty() && word != ";" && word != "="; word = words->Next()) {
    if (word == ".align")
      global.align = LeadingNumber(words->Next());
    else if (word == ".v2")
      vector = 2;
    else if (word == ".v4")
      vector = 4;
    else if (word == "[") {
      const std::string_view extent = words->Next();
      unsized = unsized || extent == "]";
      if (extent != "]") count *= IntegerOf(extent);
    } else if (word[0] == '.' && element == 0)
      element = SizeOfType(word);
    else if (word[0] != '.' && std::strchr("]()", word[0]) == nullptr)
      global.name = word;
  }
  if (word == "=") ReadInitial(words, element, &global.initial);
  global.size = unsized ? global.initial.size() : uint64_t(element) * vector * count;
  global.align = std::max({global.align, element * vector, 1u});
  return global;
}

}  // namespace

const Entry* Image::Find(std::string_view name) const {
  for (const Entry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Result ReadPtx(std::string_view text, int cc, int cuda_version, Image* image) {
  PtxTokenizer words(text);
  if (words.Next() != ".version") return Result::kInvalidImage;
  image->ptx_version = VersionOf(words.Next());
  if (image->ptx_version == 0) return Result::kInvalidPtx;
  if (image->ptx_version > NewestPtx(cuda_version)) return Result::kUnsupportedPtxVersion;
  if (words.Next() != ".target") return Result::kInvalidPtx;
  const std::string_view target = words.Next();
  if (!target.starts_with("sm_")) return Result::kInvalidPtx;
  image->target = int(LeadingNumber(target.substr(3)));
  if (image->target > cc) return Result::kInvalidPtx;
  int depth = 0;
  std::string_view last;
  for (std::string_view word = words.Next(); !word.empty(); last = word, word = words.Next()) {
    if (word == "{" || word == "(")
      ++depth;
    else if (word == "}" || word == ")")
      --depth;
    else if (word == ".entry" && depth == 0)
      image->entries.push_back(ReadEntry(&words));
    else if ((word == ".global" || word == ".const") && depth == 0) {
      Global global = ReadGlobal(&words);
      // External variables and texture references have no memory here.
      if (last != ".extern" && global.size != 0) image->globals.push_back(std::move(global));
    }
  }
  return depth == 0 ? Result::kSuccess : Result::kInvalidPtx;
}

Result ReadImage(const void* data, size_t size, int cc, int cuda_version, Image* image) {
  if (data == nullptr) return Result::kInvalidValue;
  const char* bytes = static_cast<const char*>(data);
  if (bytes[0] == ELFMAG0) return ReadCubin(bytes, size, cc, image);
  uint32_t magic = 0;
  if (bytes[0] != '\0' && bytes[1] != '\0' && bytes[2] != '\0') std::memcpy(&magic, bytes, 4);
  if (magic == kFatBinaryMagic || magic == kFatBinaryWrapperMagic) {
    image->accepts_any_name = true;
    return Result::kSuccess;
  }
  const unsigned char first = static_cast<unsigned char>(bytes[0]);
  if (!std::isspace(first) && first != '.' && first != '/') return Result::kInvalidImage;
  return ReadPtx(bytes, cc, cuda_version, image);
}

bool ReadWholeFile(const char* path, std::string* bytes) {
  constexpr size_t kLargestFile = 256 << 20;
  std::FILE* file = std::fopen(path, "rbe");
  if (file == nullptr) return false;
  char buffer[1 << 14];
  while (bytes->size() < kLargestFile) {
    const size_t count = std::fread(buffer, 1, sizeof(buffer), file);
    if (count == 0) break;
    bytes->append(buffer, count);
  }
  std::fclose(file);
  return true;
}

std::string_view BareName(std::string_view name) {
  if (!name.starts_with("_Z") || name.size() < 4) return name;
  const std::string_view rest = name.substr(2);
  size_t digits = 0;
  while (digits < rest.size() && std::isdigit(static_cast<unsigned char>(rest[digits]))) ++digits;
  const uint32_t length = LeadingNumber(rest);
  return digits == 0 || digits + length > rest.size() ? name : rest.substr(digits, length);
}

}  // namespace tessera::cuda
