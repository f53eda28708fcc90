// SPDX-License-Identifier: Apache-2.0
// E3: what allocations take, and what a limit gives. E4: what contexts and modules take. E5: pools.
#include <algorithm>
#include <functional>
#include <vector>

#include "tests/real_gpu/libraries.h"

namespace tessera::real_gpu {
namespace {

constexpr uint64_t kChunkBytes = 64 * kMiB;

// A way to allocate memory. `free` frees what the last `take` allocated.
struct Kind {
  const char* name;
  std::function<cuda::Result(uint64_t bytes)> take;
  std::function<void()> free;
};

cuda::PhysicalMemoryProperties OnGpu() {
  return {.type = 1, .location = {.type = cuda::kLocationDevice, .id = 0}};
}

std::vector<Kind> Kinds() {
  static std::vector<cuda::DevicePtr> pointers;
  static std::vector<cuda::PhysicalMemory> physical;
  static std::vector<cuda::Array> arrays;
  const auto keep = [](cuda::Result result, const cuda::DevicePtr& pointer) {
    if (result == cuda::Result::kSuccess) pointers.push_back(pointer);
    return result;
  };
  const auto free = [] {
    CALL(cuMemFree_v2, pointers.back());
    pointers.pop_back();
  };
  std::vector<Kind> kinds;
  kinds.push_back({"cuMemAlloc",
                   [=](uint64_t bytes) {
                     cuda::DevicePtr pointer = 0;
                     return keep(DRIVER(cuMemAlloc_v2)(&pointer, bytes), pointer);
                   },
                   free});
  kinds.push_back({"cuMemAllocPitch, rows of 1000 bytes",
                   [=](uint64_t bytes) {
                     cuda::DevicePtr pointer = 0;
                     size_t pitch = 0;
                     const size_t rows = std::max<size_t>(1, bytes / 1024);
                     return keep(DRIVER(cuMemAllocPitch_v2)(&pointer, &pitch, 1000, rows, 4),
                                 pointer);
                   },
                   free});
  kinds.push_back({"cuMemAllocAsync",
                   [=](uint64_t bytes) {
                     cuda::DevicePtr pointer = 0;
                     const auto result = DRIVER(cuMemAllocAsync)(&pointer, bytes, nullptr);
                     CALL(cuStreamSynchronize, nullptr);
                     return keep(result, pointer);
                   },
                   [] {
                     CALL(cuMemFreeAsync, pointers.back(), nullptr);
                     CALL(cuStreamSynchronize, nullptr);
                     pointers.pop_back();
                   }});
  kinds.push_back({"cuMemCreate",
                   [](uint64_t bytes) {
                     cuda::PhysicalMemory memory = 0;
                     const auto properties = OnGpu();
                     const uint64_t whole = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
                     const auto result = DRIVER(cuMemCreate)(&memory, whole, &properties, 0);
                     if (result == cuda::Result::kSuccess) physical.push_back(memory);
                     return result;
                   },
                   [] {
                     CALL(cuMemRelease, physical.back());
                     physical.pop_back();
                   }});
  kinds.push_back({"cuArrayCreate, rows of 4096 bytes",
                   [](uint64_t bytes) {
                     cuda::Array array = nullptr;
                     const cuda::ArrayDescriptor shape{4096, std::max<uint64_t>(1, bytes / 4096),
                                                       cuda::kFormatUint8, 1};
                     const auto result = DRIVER(cuArrayCreate_v2)(&array, &shape);
                     if (result == cuda::Result::kSuccess) arrays.push_back(array);
                     return result;
                   },
                   [] {
                     CALL(cuArrayDestroy, arrays.back());
                     arrays.pop_back();
                   }});
  return kinds;
}

std::string Text(uint64_t bytes) {
  if (bytes % kMiB == 0) return fmt::format("{} MiB", bytes / kMiB);
  return bytes < kMiB ? fmt::format("{} B", bytes)
                      : fmt::format("{:.1f} MiB", double(bytes) / kMiB);
}

// How much the used memory has grown; 0 if other processes have freed more than was taken.
uint64_t Growth(uint64_t before, uint64_t after) { return after - std::min(before, after); }

// What 1 B, 1 MiB, 3 MiB and 257 MiB take of the device.
void MeasureKinds(nvml::Device device) {
  for (const Kind& kind : Kinds()) {
    std::string answer;
    for (const uint64_t bytes : {uint64_t(1), kMiB, 3 * kMiB, 257 * kMiB}) {
      const uint64_t before = UsedGpuBytes(device);
      const auto result = kind.take(bytes);
      const uint64_t after = UsedGpuBytes(device);
      if (!answer.empty()) answer += ", ";
      answer += result == cuda::Result::kSuccess ? Text(Growth(before, after))
                                                 : fmt::format("error {}", int(result));
      if (result == cuda::Result::kSuccess) kind.free();
    }
    Row("E3", fmt::format("{}: 1 B, 1, 3, 257 MiB take", kind.name), answer);
  }
}

void MeasureContexts(nvml::Device device, uint64_t before, uint64_t first) {
  cuda::Context second = nullptr;
  const uint64_t before_second = UsedGpuBytes(device);
  CALL(cuCtxCreate_v2, &second, 0, 0);
  Row("E4", "first context, with a module", Text(Growth(before, first)));
  Row("E4", "second context of the process", Text(Growth(before_second, UsedGpuBytes(device))));
  CALL(cuCtxDestroy_v2, second);
}

void MeasureModules(nvml::Device device) {
  constexpr char kVariable[] =
      ".version 6.4\n.target sm_75\n.address_size 64\n"
      ".visible .global .align 4 .b8 large[268435456];\n.visible .entry unused() { ret; }\n";
  cuda::Module module = nullptr;
  const uint64_t before = UsedGpuBytes(device);
  CALL(cuModuleLoadData, &module, kVariable);
  Row("E4", "a module with a variable of 256 MiB", Text(Growth(before, UsedGpuBytes(device))));
  CALL(cuModuleUnload, module);
  const uint64_t before_stack = UsedGpuBytes(device);
  constexpr int kStackSize = 0;
  const auto result = DRIVER(cuCtxSetLimit)(kStackSize, 65536);
  Row("E4", "a stack of 64 KiB for each thread",
      result == cuda::Result::kSuccess ? Text(Growth(before_stack, UsedGpuBytes(device)))
                                       : fmt::format("error {}", int(result)));
  (void)DRIVER(cuCtxSetLimit)(kStackSize, 1024);
}

void MeasurePools() {
  cuda::MemPool pool = nullptr;
  CALL(cuDeviceGetDefaultMemPool, &pool, 0);
  uint64_t reserved = 0, threshold = UINT64_MAX;
  CALL(cuMemPoolSetAttribute, pool, 4, &threshold);  // keeps freed memory
  const double ns = NsOf(1000, [] {
    cuda::DevicePtr pointer = 0;
    CALL(cuMemAllocAsync, &pointer, 8 * kMiB, nullptr);
    CALL(cuMemFreeAsync, pointer, nullptr);
  });
  CALL(cuCtxSynchronize, );
  CALL(cuMemPoolGetAttribute, pool, 5, &reserved);
  Row("E5", "1,000 pairs of 8 MiB from the default pool",
      fmt::format("{:.0f} ns a pair, {} reserved", ns, Text(reserved)));
  Row("E5", "a query of the reserved memory",
      fmt::format("{:.0f} ns",
                  NsOf(10000, [&] { CALL(cuMemPoolGetAttribute, pool, 5, &reserved); })));
  threshold = 0;
  CALL(cuMemPoolSetAttribute, pool, 4, &threshold);
  CALL(cuMemPoolTrimTo, pool, 0);
  cuda::MemPool capped = nullptr;
  const cuda::MemPoolProperties properties{.alloc_type = 1,
                                           .location = {.type = cuda::kLocationDevice, .id = 0},
                                           .max_size = kChunkBytes};
  CALL(cuMemPoolCreate, &capped, &properties);
  std::vector<cuda::DevicePtr> pointers;
  for (cuda::DevicePtr pointer = 0;
       pointers.size() < 64 &&
       DRIVER(cuMemAllocFromPoolAsync)(&pointer, 8 * kMiB, capped, nullptr) ==
           cuda::Result::kSuccess;) {
    pointers.push_back(pointer);
  }
  Row("E5", "a pool of at most 64 MiB gives", Text(pointers.size() * 8 * kMiB));
  for (const cuda::DevicePtr pointer : pointers) CALL(cuMemFreeAsync, pointer, nullptr);
  CALL(cuCtxSynchronize, );
  CALL(cuMemPoolDestroy, capped);
}

}  // namespace

void RunMemory() {
  if (DRIVER(cuInit)(0) != cuda::Result::kSuccess) Exit(kSkipped, "no GPU: cuInit failed");
  const nvml::Device device = NvmlDevice();
  const uint64_t before = UsedGpuBytes(device);
  Program program;
  MeasureContexts(device, before, UsedGpuBytes(device));
  MeasureKinds(device);
  MeasureModules(device);
  MeasurePools();
}

// Takes memory of each kind until the driver refuses, and then frees it.
void RunCap() {
  Program program;
  size_t free = 0, total = 0;
  CALL(cuMemGetInfo_v2, &free, &total);
  for (const Kind& kind : Kinds()) {
    uint64_t chunks = 0;
    auto result = cuda::Result::kSuccess;
    while (chunks < 4096 && (result = kind.take(kChunkBytes)) == cuda::Result::kSuccess) ++chunks;
    Row("E3", fmt::format("{}, in a share of {}", kind.name, Text(total)),
        fmt::format("{} in chunks of 64 MiB, then error {}", Text(chunks * kChunkBytes),
                    int(result)));
    for (uint64_t i = 0; i < chunks; ++i) kind.free();
    cuda::MemPool pool = nullptr;
    CALL(cuDeviceGetDefaultMemPool, &pool, 0);
    CALL(cuMemPoolTrimTo, pool, 0);
  }
}

}  // namespace tessera::real_gpu
