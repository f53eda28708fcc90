// SPDX-License-Identifier: Apache-2.0
// E1: what the libraries export and what cuGetProcAddress finds. E2: export tables. E10: NVML.
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/real_gpu/libraries.h"

namespace tessera::real_gpu {
namespace {

struct Symbol {
  const char* name;
  unsigned since;
};
constexpr Symbol kSymbols[] = {
#define CUDA_SYMBOL(name, since, class_) {#name, since},
#define CUDA_DEBUGGER_SYMBOL(name) {#name, 0},
#include "api/cuda_symbols.inc"
#undef CUDA_SYMBOL
#undef CUDA_DEBUGGER_SYMBOL
};

// The number of symbols of the library, from its hash table.
size_t SymbolCount(const uint32_t* table) {
  const uint32_t buckets = table[0], offset = table[1], bloom = table[2];
  const uint32_t* bucket = table + 4 + size_t{bloom} * 2;
  const uint32_t* chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i) last = std::max(last, bucket[i]);
  if (last < offset) return offset;
  while ((chain[last - offset] & 1) == 0) ++last;
  return last + 1;
}

// The exported names of a loaded library that begin with "cu".
std::set<std::string> ExportsOf(const Library& library) {
  link_map* map = nullptr;
  std::set<std::string> names;
  if (::dlinfo(library.handle(), RTLD_DI_LINKMAP, &map) != 0) return names;
  const char* strings = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const uint32_t* hash = nullptr;
  for (const ElfW(Dyn)* item = map->l_ld; item->d_tag != DT_NULL; ++item) {
    const auto* at = reinterpret_cast<const char*>(item->d_un.d_ptr);
    if (item->d_tag == DT_STRTAB) strings = at;
    if (item->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
    if (item->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const uint32_t*>(at);
  }
  if (strings == nullptr || symbols == nullptr || hash == nullptr) return names;
  const size_t count = SymbolCount(hash);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view name = strings + symbols[i].st_name;
    if (symbols[i].st_shndx != SHN_UNDEF && name.starts_with("cu")) names.emplace(name);
  }
  return names;
}

// The number of names, and the first three.
std::string Summarize(const std::vector<std::string>& names) {
  std::string text = fmt::format("{}", names.size());
  for (size_t i = 0; i < std::min<size_t>(names.size(), 3); ++i) {
    text += (i == 0 ? ": " : ", ") + names[i];
  }
  return text + (names.size() > 3 ? ", …" : "");
}

void CompareExports(int version) {
  std::set<std::string> known;
  std::vector<std::string> missing, unknown;
  for (const Symbol& symbol : kSymbols) {
    known.insert(symbol.name);
    const bool expected = symbol.since != 0 && int(symbol.since) <= version;
    if (expected && Cuda().Find<void*>(symbol.name) == nullptr) missing.push_back(symbol.name);
  }
  for (const std::string& name : ExportsOf(Cuda())) {
    if (!known.contains(name)) unknown.push_back(name);
  }
  Row("E1", "functions of the driver's CUDA version that the driver does not export",
      Summarize(missing));
  Row("E1", "exported functions that api/cuda_symbols.inc lacks", Summarize(unknown));
}

// Prints how many names are found, and a digest (FNV-1a) of all answers to compare two runs.
void LookUpAll(int version) {
  const auto ask = Cuda().Find<cuda::fn::cuGetProcAddress_v2>("cuGetProcAddress_v2");
  if (ask == nullptr) return Row("E1", "look-ups by cuGetProcAddress", "none before CUDA 12");
  std::set<std::string> names;
  for (const Symbol& symbol : kSymbols) {
    std::string name = symbol.name;
    if (name.ends_with("_ptsz") || name.ends_with("_ptds")) name.resize(name.size() - 5);
    if (name.size() > 3 && name[name.size() - 3] == '_' && name[name.size() - 2] == 'v') {
      name.resize(name.size() - 3);
    }
    names.insert(name);
  }
  uint64_t digest = 14695981039346656037u;
  int asked = 0, found = 0;
  for (const std::string& name : names) {
    for (const int flags : {0, 2}) {
      void* function = nullptr;
      int status = -1;
      const auto result = ask(name.c_str(), &function, version, uint64_t(flags), &status);
      ++asked;
      if (function != nullptr) ++found;
      for (const int value : {int(result), status, int(function != nullptr)}) {
        digest = (digest ^ uint64_t(value & 0xff)) * 1099511628211u;
      }
    }
  }
  Row("E1", "look-ups by cuGetProcAddress", fmt::format("{} of {} found", found, asked));
  Row("E1", "digest of all answers", fmt::format("{:016x}", digest));
}

void AskExportTables() {
  // The tables that NVIDIA's runtime requests when it starts.
  constexpr unsigned char kTables[][16] = {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89,
                                            0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
                                           {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93,
                                            0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
                                           {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8,
                                            0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93}};
  int have = 0;
  for (const auto& id : kTables) {
    const void* table = nullptr;
    cuda::Uuid uuid{};
    static_assert(sizeof(uuid) == sizeof(id));
    __builtin_memcpy(&uuid, id, sizeof(id));
    if (DRIVER(cuGetExportTable)(&table, &uuid) == cuda::Result::kSuccess && table != nullptr) {
      ++have;
    }
  }
  Row("E2", "export tables that the CUDA runtime requests at its start",
      fmt::format("{} of 3", have));
}

uint64_t NowUs() {
  return uint64_t(std::chrono::duration_cast<std::chrono::microseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count());
}

double Median(std::vector<double> values) {
  if (values.empty()) return -1;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Polls the utilization samples of processes while the GPU is busy.
void WatchSamples(Program& program, nvml::Device device) {
  std::set<uint64_t> times;
  std::vector<double> ages;
  std::set<unsigned> own_utilizations;  // of the SMs by this process, percent
  size_t most = 0;
  const double end = NowNs() + 4000 * kMs;
  while (NowNs() < end) {
    for (int i = 0; i < 10; ++i) program.LaunchSpin();
    nvml::ProcessUtilizationSample samples[256];
    unsigned count = 256;
    const auto result = NVML(nvmlDeviceGetProcessUtilization)(device, samples, &count, 0);
    const uint64_t now = NowUs();
    if (result == nvml::Return::kSuccess && count > 0) {
      uint64_t newest = 0;
      for (unsigned i = 0; i < count; ++i) {
        times.insert(samples[i].timestamp);
        newest = std::max(newest, samples[i].timestamp);
        if (samples[i].pid == unsigned(::getpid())) own_utilizations.insert(samples[i].sm);
      }
      most = std::max<size_t>(most, count);
      ages.push_back(double(now - newest) / 1000);
    }
    CALL(cuCtxSynchronize, );
  }
  std::vector<double> steps;
  for (auto at = times.begin(); at != times.end() && std::next(at) != times.end(); ++at) {
    steps.push_back(double(*std::next(at) - *at) / 1000);
  }
  Row("E10", "process utilization: samples a call", fmt::format("at most {}", most));
  Row("E10", "process utilization: step of timestamps", fmt::format("{:.0f} ms", Median(steps)));
  Row("E10", "process utilization: age of the newest", fmt::format("{:.0f} ms", Median(ages)));
  Row("E10", "process utilization: of a process that fills the GPU",
      own_utilizations.empty()
          ? "not listed by its pid"
          : fmt::format("{} to {} %", *own_utilizations.begin(), *own_utilizations.rbegin()));
  unsigned count = 0;
  Row("E10", "process utilization: query for samples newer than the newest",
      fmt::format("result {}", int(NVML(nvmlDeviceGetProcessUtilization)(device, nullptr, &count,
                                                                         NowUs() + 1'000'000))));
}

void TimeNvml(nvml::Device device) {
  nvml::ProcessUtilizationSample samples[256];
  nvml::ProcessInfo processes[256];
  Row("E10", "time of nvmlDeviceGetProcessUtilization",
      fmt::format("{:.0f} µs", NsOf(100, [&] {
                                 unsigned count = 256;
                                 (void)NVML(nvmlDeviceGetProcessUtilization)(device, samples,
                                                                             &count, 0);
                               }) / 1000));
  unsigned count = 256;
  Row("E10", "time of nvmlDeviceGetComputeRunningProcesses",
      fmt::format("{:.0f} µs", NsOf(100, [&] {
                                 count = 256;
                                 (void)NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count,
                                                                                     processes);
                               }) / 1000));
  const bool listed = std::any_of(processes, processes + std::min(count, 256u),
                                  [](const auto& one) { return one.pid == unsigned(::getpid()); });
  Row("E10", "pid in the list of processes", listed ? "that of getpid()" : "another, or none");
  nvml::GpmSample sample = nullptr;
  const auto allocate = Nvml().Find<nvml::fn::nvmlGpmSampleAlloc>("nvmlGpmSampleAlloc");
  if (allocate == nullptr || allocate(&sample) != nvml::Return::kSuccess) return;
  const auto result = NVML(nvmlGpmSampleGet)(device, sample);
  Row("E10", "time of nvmlGpmSampleGet",
      result != nvml::Return::kSuccess
          ? fmt::format("result {}", int(result))
          : fmt::format("{:.0f} µs",
                        NsOf(20, [&] { (void)NVML(nvmlGpmSampleGet)(device, sample); }) / 1000));
  (void)NVML(nvmlGpmSampleFree)(sample);
}

}  // namespace

void RunFacts() {
  Program program;
  int version = 0;
  CALL(cuDriverGetVersion, &version);
  const nvml::Device device = NvmlDevice();
  CompareExports(version);
  LookUpAll(version);
  AskExportTables();
  WatchSamples(program, device);
  TimeNvml(device);
}

}  // namespace tessera::real_gpu
