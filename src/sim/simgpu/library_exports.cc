// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/library_exports.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>

#include "src/base/file.h"

namespace tessera::sim {
namespace {

struct VersionedSymbol {
  std::string_view name;
  uint32_t version;
};

// Both tables are sorted by name.
constexpr VersionedSymbol kCudaSymbols[] = {
#define CUDA_SYMBOL(name, since, class_) {#name, since},
#define CUDA_DEBUGGER_SYMBOL(name)
#include "api/cuda_symbols.inc"
#undef CUDA_SYMBOL
#undef CUDA_DEBUGGER_SYMBOL
};
constexpr VersionedSymbol kNvmlSymbols[] = {
#define NVML_SYMBOL(name, branch) {#name, branch},
#include "src/sim/nvml/symbols.inc"
#undef NVML_SYMBOL
};
constexpr uint32_t kOldestBranch = 418;  // in kNvmlSymbols

bool IsNewer(std::span<const VersionedSymbol> symbols, std::string_view name, uint32_t version) {
  const auto found = std::ranges::lower_bound(symbols, name, {}, &VersionedSymbol::name);
  return found != symbols.end() && found->name == name && found->version > version;
}

// `count` items of type T in the file's bytes; empty: beyond the end of the file.
template <typename T>
std::span<T> Items(std::string& bytes, uint64_t offset, uint64_t count) {
  if (offset > bytes.size() || count > (bytes.size() - offset) / sizeof(T)) return {};
  return {reinterpret_cast<T*>(bytes.data() + offset), count};
}

// Removes the section of a symbol: the dynamic loader then looks for the definition in other
// libraries. The hash table may still have the name.
void Undefine(Elf64_Sym* symbol) {
  symbol->st_shndx = SHN_UNDEF;
  symbol->st_value = symbol->st_size = 0;
  symbol->st_info = ELF64_ST_INFO(STB_WEAK, ELF64_ST_TYPE(symbol->st_info));
}

Status LimitExports(const std::string& file, std::span<const VersionedSymbol> symbols,
                    uint32_t version) {
  auto contents = ReadFile(file);
  if (!contents.ok()) return contents.status();
  std::string& bytes = *contents;
  const auto header = Items<Elf64_Ehdr>(bytes, 0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return {};
  const auto sections = Items<Elf64_Shdr>(bytes, header[0].e_shoff, header[0].e_shnum);
  const auto table = std::ranges::find(sections, uint32_t{SHT_DYNSYM}, &Elf64_Shdr::sh_type);
  if (table == sections.end() || table->sh_link >= sections.size()) {
    return Error(Code::kInvalidArgument, "{} has no dynamic symbols: build it again", file);
  }
  const Elf64_Shdr& strings = sections[table->sh_link];
  const auto names = Items<char>(bytes, strings.sh_offset, strings.sh_size);
  const uint64_t count = table->sh_size / sizeof(Elf64_Sym);
  for (Elf64_Sym& symbol : Items<Elf64_Sym>(bytes, table->sh_offset, count)) {
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= names.size()) continue;
    if (IsNewer(symbols, names.data() + symbol.st_name, version)) Undefine(&symbol);
  }
  return WriteFileAtomically(file, bytes, 0755);
}

}  // namespace

Status LimitCudaExports(const std::string& file, uint32_t cuda_version) {
  return LimitExports(file, kCudaSymbols, cuda_version);
}

Status LimitNvmlExports(const std::string& file, std::string_view driver_version) {
  const auto branch = uint32_t(std::atoi(std::string(driver_version).c_str()));
  return LimitExports(file, kNvmlSymbols, std::max(branch, kOldestBranch));
}

}  // namespace tessera::sim
