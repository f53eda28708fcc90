// SPDX-License-Identifier: Apache-2.0
// Measures what the simulated driver costs a program: the size of each library, the time to load
// and initialize it in a new process, the number of exported functions that are implemented, and
// the time of the look-ups that a CUDA runtime makes at its start.
//   sim_bench [processes, 200]
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/sim/testing/sim_node.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// The number of symbols that a CUDA runtime looks up at its start.
constexpr size_t kLookUps = 440;
constexpr std::string_view kCudaSymbols[] = {
#define CUDA_SYMBOL(name, since, class_) #name,
#define CUDA_DEBUGGER_SYMBOL(name)
#include "api/cuda_symbols.inc"
#undef CUDA_SYMBOL
#undef CUDA_DEBUGGER_SYMBOL
};
// The functions that the library exports without an implementation.
constexpr std::string_view kNvmlUnimplemented[] = {
#define NVML_UNIMPLEMENTED(name) #name,
#include "src/sim/nvml/unimplemented.inc"
#undef NVML_UNIMPLEMENTED
};

struct Times {
  double load_ms = 0;
  double init_ms = 0;
};

double Ms(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

// Runs in the child. Calls `init` with one argument, which only cuInit(0) reads.
Times LoadAndInit(const std::string& path, const char* init) {
  const auto start = Clock::now();
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto loaded = Clock::now();
  if (library == nullptr) _exit(1);
  const auto function = reinterpret_cast<int (*)(unsigned)>(::dlsym(library, init));
  const auto found = Clock::now();
  if (function == nullptr || function(0) != 0) _exit(1);
  return {Ms(loaded - start), Ms(Clock::now() - found)};
}

bool RunChild(const std::string& path, const char* init, Times* times) {
  int ends[2];
  if (::pipe(ends) != 0) return false;
  const pid_t child = ::fork();
  if (child == 0) {
    const Times measured = LoadAndInit(path, init);
    _exit(::write(ends[1], &measured, sizeof(measured)) == sizeof(measured) ? 0 : 1);
  }
  ::close(ends[1]);
  const bool read = ::read(ends[0], times, sizeof(*times)) == sizeof(*times);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return read && status == 0;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Functions in the dynamic symbol table that the library defines.
size_t CountExports(const std::string& elf, bool only_weak) {
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof(header));
  size_t count = 0;
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, elf.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_type != SHT_DYNSYM) continue;
    for (size_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, elf.data() + section.sh_offset + at, sizeof(symbol));
      const bool function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
      if (!function || symbol.st_shndx == SHN_UNDEF) continue;
      if (!only_weak || ELF64_ST_BIND(symbol.st_info) == STB_WEAK) ++count;
    }
  }
  return count;
}

// The number of exports without an implementation. In libcuda these are the weak definitions of
// src/sim/cuda/loader/symbols.cc, and cuGetExportTable, which has no table.
size_t CountUnimplemented(const std::string& elf, bool cuda) {
  return cuda ? CountExports(elf, true) + 1 : std::size(kNvmlUnimplemented);
}

bool Measure(const std::string& path, const char* init, bool cuda, int processes) {
  const Result<std::string> elf = ReadFile(path);
  if (!elf.ok()) {
    fmt::print(stderr, "sim_bench: {}\n", elf.status().message());
    return false;
  }
  std::vector<double> load_ms, init_ms;
  for (int i = 0; i < processes; ++i) {
    Times times;
    if (!RunChild(path, init, &times)) {
      fmt::print(stderr, "sim_bench: {} in {} failed\n", init, path);
      return false;
    }
    load_ms.push_back(times.load_ms);
    init_ms.push_back(times.init_ms);
  }
  const size_t exported = CountExports(*elf, false);
  fmt::print("| {} | {} KiB | {:.2f} ms / {:.2f} ms | {} of {} |\n", BaseName(path),
             (elf->size() + 512) / 1024, Median(load_ms), Median(init_ms),
             exported - CountUnimplemented(*elf, cuda), exported);
  return true;
}

// Looks up names without suffix, as a runtime does. The times include the first call of the
// library.
bool MeasureLookUps(const std::string& path, int rounds) {
  std::vector<std::string> names;
  for (const std::string_view symbol : kCudaSymbols) {
    if (symbol.find('_') == symbol.npos && names.size() < kLookUps) names.emplace_back(symbol);
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto look_up = reinterpret_cast<int (*)(const char*, void**, int, uint64_t, int*)>(
      library == nullptr ? nullptr : ::dlsym(library, "cuGetProcAddress_v2"));
  if (look_up == nullptr) return false;
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (const std::string& name : names) {
      void* function = nullptr;
      int status = 0;
      look_up(name.c_str(), &function, 12000, 0, &status);
    }
    times.push_back(1000 * Ms(Clock::now() - start));
  }
  fmt::print("\n{} calls of cuGetProcAddress: the first time {:.0f} µs, then p50 {:.0f} µs\n",
             names.size(), times.front(), Median(times));
  return true;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const int64_t processes = argc > 1 ? tessera::ParseInt(argv[1]).value_or(0) : 200;
  if (argc > 2 || processes < 1 || processes > 100'000) {
    fmt::print(stderr, "usage: sim_bench [processes, 1 to 100000 (200)]\n");
    return 2;
  }
  const tessera::sim::testing::SimNode node({.profile = "a100-sxm4-80gb", .gpus = 8});
  const int count = static_cast<int>(processes);
  fmt::print(
      "| library | size | dlopen / init, p50 of {} processes | functions that answer, of those "
      "exported |\n|---|---|---|---|\n",
      count);
  std::fflush(stdout);
  const std::string cuda = node.library("libcuda.so.1"), nvml = node.library("libnvidia-ml.so.1");
  bool ok = tessera::Measure(cuda, "cuInit", true, count);
  std::fflush(stdout);
  ok = tessera::Measure(nvml, "nvmlInit_v2", false, count) && ok;
  return tessera::MeasureLookUps(cuda, count) && ok ? 0 : 1;
}
