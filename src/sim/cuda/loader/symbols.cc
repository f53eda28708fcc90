// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/loader/symbols.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

// This file must not include api/cuda_abi.h, which declares these functions with parameters. These
// functions need none: on x86-64 and AArch64 the caller removes the arguments from the stack.
#define CUDA_SYMBOL(name, since, class_)                               \
  extern "C" __attribute__((weak, visibility("default"))) int name() { \
    return tessera::cuda::ReportUnimplemented(#name);                  \
  }
#define CUDA_DEBUGGER_SYMBOL(name)
#include "api/cuda_symbols.inc"
#undef CUDA_SYMBOL

namespace tessera::cuda {
namespace {

struct Symbol {
  constexpr Symbol(std::string_view name, unsigned since, AnyFunction function)
      : base_name(name), since(since), function(function) {
    if (base_name.ends_with("_ptsz") || base_name.ends_with("_ptds")) {
      per_thread_stream = true;
      base_name.remove_suffix(5);
    }
    if (base_name.size() > 3 && base_name.substr(base_name.size() - 3, 2) == "_v")
      base_name.remove_suffix(3);
  }

  std::string_view base_name;
  bool per_thread_stream = false;
  unsigned since;
  AnyFunction function;
};

// Sorted by base name and stream mode, the newest symbol last.
constexpr auto kSymbols = [] {
  std::array symbols = {
#define CUDA_SYMBOL(name, since, class_) Symbol(#name, since, &name),
#include "api/cuda_symbols.inc"
#undef CUDA_SYMBOL
#undef CUDA_DEBUGGER_SYMBOL
  };
  std::ranges::sort(symbols, {}, [](const Symbol& symbol) {
    return std::tuple(symbol.base_name, symbol.per_thread_stream, symbol.since);
  });
  return symbols;
}();

constexpr uint32_t Hash(std::string_view text) {  // FNV-1a
  uint32_t hash = 2166136261;
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 16777619;
  return hash;
}

// A hash table of base names with linear probing. A slot is the position of a base name's first
// symbol in kSymbols, or kNone.
constexpr size_t kSlots = 2048;
constexpr uint16_t kNone = UINT16_MAX;
static_assert(kSymbols.size() * 2 < kSlots);

constexpr auto kFirstSymbol = [] {
  std::array<uint16_t, kSlots> slots;
  slots.fill(kNone);
  for (size_t i = 0; i < kSymbols.size(); ++i) {
    if (i > 0 && kSymbols[i].base_name == kSymbols[i - 1].base_name) continue;
    size_t slot = Hash(kSymbols[i].base_name) % kSlots;
    while (slots[slot] != kNone) slot = (slot + 1) % kSlots;
    slots[slot] = uint16_t(i);
  }
  return slots;
}();

size_t FirstSymbolOf(std::string_view base_name) {
  size_t slot = Hash(base_name) % kSlots;
  while (kFirstSymbol[slot] != kNone && kSymbols[kFirstSymbol[slot]].base_name != base_name) {
    slot = (slot + 1) % kSlots;
  }
  return kFirstSymbol[slot] == kNone ? kSymbols.size() : kFirstSymbol[slot];
}

}  // namespace

FoundSymbol FindSymbol(std::string_view base_name, bool per_thread_stream, unsigned version,
                       unsigned driver) {
  FoundSymbol found;
  bool found_per_thread = false;
  for (size_t i = FirstSymbolOf(base_name); i < kSymbols.size(); ++i) {
    const Symbol& symbol = kSymbols[i];
    if (symbol.base_name != base_name || (symbol.per_thread_stream && !per_thread_stream)) break;
    if (symbol.since == 0 || symbol.since > driver) continue;
    // The first symbol for per-thread streams replaces what was found for legacy streams.
    if (symbol.per_thread_stream && !found_per_thread) found = {};
    found_per_thread = symbol.per_thread_stream;
    if (symbol.since <= version) {
      found = {symbol.function, Lookup::kFound};
    } else if (found.status != Lookup::kFound) {
      found.status = Lookup::kVersionNotSufficient;
    }
  }
  return found;
}

}  // namespace tessera::cuda
