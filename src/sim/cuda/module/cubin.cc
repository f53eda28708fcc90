// SPDX-License-Identifier: Apache-2.0
// Reads a cubin: an ELF file whose sections describe parameters of kernels, and variables.
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "src/sim/cuda/module/image.h"

namespace tessera::cuda {
namespace {

constexpr uint16_t kCudaMachine = 190;
// From this ABI version on, the header flags have the architecture in other bits.
constexpr unsigned char kWideAbi = 8;
// An attribute in a section .nv.info.<kernel>. Depending on the format, `size` is the size of the
// data that follows, or a value.
constexpr uint8_t kSizedValue = 4, kParameterInfo = 0x17;
struct InfoAttribute {
  uint8_t format, name;
  uint16_t size;
};
struct ParameterInfo {
  uint32_t index;
  uint16_t ordinal, offset;
  uint32_t flags;
  uint32_t size() const { return flags >> 18; }
};
static_assert(sizeof(ParameterInfo) == 12);

// The sections of the file. If the size is unknown, the driver must trust the header's offsets.
class Elf {
 public:
  // REQUIRES: `size` is at least the size of the header.
  Elf(const char* data, size_t size) : data_(data), size_(size) {
    std::memcpy(&header_, data, sizeof(header_));
  }

  // True: the sections and their names are within the file. Other functions require this.
  bool valid() const {
    const bool has_sections =
        header_.e_machine == kCudaMachine && header_.e_shoff != 0 &&
        header_.e_shentsize == sizeof(Elf64_Shdr) && header_.e_shstrndx < header_.e_shnum &&
        Contains(header_.e_shoff, uint64_t(header_.e_shnum) * sizeof(Elf64_Shdr));
    if (!has_sections) return false;
    for (unsigned i = 0; i < count(); ++i) {
      const Elf64_Shdr section = Section(i);
      if (section.sh_type != SHT_NOBITS && !Contains(section.sh_offset, section.sh_size)) {
        return false;
      }
      if (!HasText(Section(header_.e_shstrndx), section.sh_name)) return false;
    }
    return true;
  }
  // The architecture: 80 for sm_80.
  int architecture() const {
    const uint32_t flags = header_.e_flags;
    return int(header_.e_ident[EI_ABIVERSION] >= kWideAbi ? flags >> 8 & 0xff : flags & 0xff);
  }
  unsigned count() const { return header_.e_shnum; }
  Elf64_Shdr Section(unsigned index) const {
    return Read<Elf64_Shdr>(header_.e_shoff + index * sizeof(Elf64_Shdr));
  }
  const char* NameOf(const Elf64_Shdr& section) const {
    return At(Section(header_.e_shstrndx).sh_offset + section.sh_name);
  }
  // True: the section of texts has a text at the offset, with its NUL.
  bool HasText(const Elf64_Shdr& texts, uint64_t offset) const {
    return texts.sh_type == SHT_STRTAB && Contains(texts.sh_offset, texts.sh_size) &&
           offset < texts.sh_size &&
           std::memchr(At(texts.sh_offset + offset), 0, texts.sh_size - offset) != nullptr;
  }
  const char* At(uint64_t offset) const { return data_ + offset; }
  template <typename T>
  T Read(uint64_t offset) const {
    T value;
    std::memcpy(&value, At(offset), sizeof(value));
    return value;
  }

 private:
  bool Contains(uint64_t offset, uint64_t bytes) const {
    return offset <= size_ && bytes <= size_ - offset;
  }

  const char* const data_;
  const size_t size_;
  Elf64_Ehdr header_;
};

// A section without parameters is valid: the kernel has none.
void ReadParameters(const Elf& elf, const Elf64_Shdr& section, Entry* entry) {
  entry->parameters_known = true;
  uint64_t at = section.sh_offset;
  const uint64_t end = at + section.sh_size;
  while (at + sizeof(InfoAttribute) <= end) {
    const auto attribute = elf.Read<InfoAttribute>(at);
    at += sizeof(InfoAttribute);
    if (attribute.format != kSizedValue) continue;
    if (attribute.size > end - at) return;
    if (attribute.name == kParameterInfo && attribute.size == sizeof(ParameterInfo)) {
      const auto info = elf.Read<ParameterInfo>(at);
      if (entry->parameters.size() <= info.ordinal) entry->parameters.resize(info.ordinal + 1u);
      entry->parameters[info.ordinal] = {info.size(), info.offset};
    }
    at += attribute.size;
  }
}

void ReadGlobals(const Elf& elf, const Elf64_Shdr& symbols, Image* image) {
  if (symbols.sh_link >= elf.count()) return;
  const Elf64_Shdr names = elf.Section(symbols.sh_link);
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
    const auto symbol = elf.Read<Elf64_Sym>(symbols.sh_offset + at);
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= elf.count()) continue;
    const Elf64_Shdr section = elf.Section(symbol.st_shndx);
    const std::string_view place = elf.NameOf(section);
    if (!place.starts_with(".nv.global") && place != ".nv.constant3") continue;
    const bool is_inside =
        symbol.st_value <= section.sh_size && symbol.st_size <= section.sh_size - symbol.st_value;
    if (!is_inside || !elf.HasText(names, symbol.st_name)) continue;
    Global global;
    global.name = elf.At(names.sh_offset + symbol.st_name);
    global.size = symbol.st_size;
    global.align = uint32_t(std::clamp<uint64_t>(section.sh_addralign, 1, UINT32_MAX));
    if (section.sh_type != SHT_NOBITS) {
      global.initial.assign(elf.At(section.sh_offset + symbol.st_value), symbol.st_size);
    }
    if (global.size != 0) image->globals.push_back(std::move(global));
  }
}

Entry* FindEntry(Image* image, std::string_view name) {
  const auto found = std::ranges::find(image->entries, name, &Entry::name);
  return found == image->entries.end() ? nullptr : &*found;
}

}  // namespace

Result ReadCubin(const char* data, size_t size, int cc, Image* image) {
  constexpr std::string_view kText = ".text.", kInfo = ".nv.info.";
  constexpr char kIdentity[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64};
  if (size < sizeof(Elf64_Ehdr)) return Result::kInvalidImage;
  // Stops at the first difference: a short text may have an unknown size.
  if (!std::equal(std::begin(kIdentity), std::end(kIdentity), data)) return Result::kInvalidImage;
  const Elf elf(data, size);
  if (!elf.valid()) return Result::kInvalidImage;
  image->target = elf.architecture();
  // A cubin runs on later GPUs of the same major version.
  if (image->target / 10 != cc / 10 || image->target > cc) return Result::kNoBinaryForGpu;
  for (unsigned i = 0; i < elf.count(); ++i) {
    const std::string_view name = elf.NameOf(elf.Section(i));
    if (!name.starts_with(kText)) continue;
    image->entries.push_back({.name = std::string(name.substr(kText.size()))});
  }
  for (unsigned i = 0; i < elf.count(); ++i) {
    const Elf64_Shdr section = elf.Section(i);
    const std::string_view name = elf.NameOf(section);
    if (section.sh_type == SHT_SYMTAB) ReadGlobals(elf, section, image);
    if (!name.starts_with(kInfo)) continue;
    Entry* entry = FindEntry(image, name.substr(kInfo.size()));
    if (entry != nullptr) ReadParameters(elf, section, entry);
  }
  return Result::kSuccess;
}

}  // namespace tessera::cuda
