// SPDX-License-Identifier: Apache-2.0
// Experiments on a GPU, real or simulated; run.py runs them and makes a table of their results.
//
//   real_gpu_experiments gpu              name, UUID, driver, CUDA version, bytes of GPU 0
//   real_gpu_experiments facts | memory | cap | launches | stamps
//                                         rows "experiment, question, answer"
//   real_gpu_experiments spin KIND SECONDS    KIND: sync, async, graph, cooperative, extended
//
// Exit codes: 0, 77 if there is no driver or no GPU, 1 otherwise.
#include <algorithm>
#include <limits>
#include <vector>

#include "tests/real_gpu/libraries.h"

namespace tessera::real_gpu {
namespace {

// The result of `spin` depends on every round, so that no compiler removes the loop.
constexpr char kPtx[] = R"(.version 6.4
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
.visible .entry spin(.param .u32 spin_rounds, .param .u64 spin_out) {
  .reg .pred %again, %never;
  .reg .b32 %left;
  .reg .f32 %value;
  .reg .b64 %out;
  ld.param.u32 %left, [spin_rounds];
  ld.param.u64 %out, [spin_out];
  cvta.to.global.u64 %out, %out;
  mov.f32 %value, 0f3F000000;
LOOP:
  fma.rn.f32 %value, %value, 0f3F000000, 0f3E800000;
  fma.rn.f32 %value, %value, 0f3F000000, 0f3E800000;
  fma.rn.f32 %value, %value, 0f3F000000, 0f3E800000;
  fma.rn.f32 %value, %value, 0f3F000000, 0f3E800000;
  sub.u32 %left, %left, 1;
  setp.ne.u32 %again, %left, 0;
  @%again bra LOOP;
  setp.lt.f32 %never, %value, 0f00000000;
  @%never st.global.f32 [%out], %value;
  ret;
}
)";

void PrintGpu() {
  const std::string uuid = UuidOfGpu();
  char name[96] = "", driver[96] = "";
  int version = 0;
  size_t bytes = 0;
  (void)NvmlDevice();
  (void)NVML(nvmlSystemGetDriverVersion)(driver, sizeof(driver));
  CALL(cuDeviceGetName, name, sizeof(name), 0);
  CALL(cuDriverGetVersion, &version);
  CALL(cuDeviceTotalMem_v2, &bytes, 0);
  fmt::print("{}\t{}\t{}\t{}\t{}\n", name, uuid, driver, version, bytes);
}

int Main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "spin") {
    RunSpin(arguments[1], std::strtod(arguments[2].c_str(), nullptr));
    return 0;
  }
  const std::string command = arguments.size() == 1 ? arguments[0] : "";
  if (command == "gpu")
    PrintGpu();
  else if (command == "facts")
    RunFacts();
  else if (command == "memory")
    RunMemory();
  else if (command == "cap")
    RunCap();
  else if (command == "launches")
    RunLaunches();
  else if (command == "stamps")
    RunStamps();
  else
    Exit(1,
         "usage: real_gpu_experiments gpu | facts | memory | cap | launches | stamps | "
         "spin KIND SECONDS");
  return 0;
}

}  // namespace

Program::Program() {
  if (const auto result = DRIVER(cuInit)(0); result != cuda::Result::kSuccess) {
    Exit(kSkipped, fmt::format("no GPU: cuInit returned {}", int(result)));
  }
  int processors = 0;
  CALL(cuCtxCreate_v2, &context, 0, 0);
  CALL(cuModuleLoadData, &module, kPtx);
  CALL(cuModuleGetFunction, &empty, module, "empty");
  CALL(cuModuleGetFunction, &spin, module, "spin");
  CALL(cuMemAlloc_v2, &out, 4);
  CALL(cuDeviceGetAttribute, &processors, 16, 0);
  spin_blocks = unsigned(processors);  // one block of 1,024 threads for each multiprocessor
  CALL(cuCtxSynchronize, );
  const double measured = MeasureSpin();
  rounds = std::max(1u, unsigned(rounds * kSpinMs * kMs / measured));
}

void Program::Launch(cuda::Function function, unsigned blocks, cuda::Stream stream) {
  void* parameters[] = {&rounds, &out};
  CALL(cuLaunchKernel, function, blocks, 1, 1, function == spin ? 1024 : 1, 1, 1, 0, stream,
       function == spin ? parameters : nullptr, nullptr);
}

// The shortest of five measures: on a busy CPU the GPU may idle between the launches of a pair.
double Program::MeasureSpin() {
  cuda::Event start = nullptr, end = nullptr;
  CALL(cuEventCreate, &start, 0);
  CALL(cuEventCreate, &end, 0);
  LaunchSpin();  // the first launch loads the kernel
  float shortest = std::numeric_limits<float>::max();
  for (int i = 0; i < 5; ++i) {
    float milliseconds = 0;
    CALL(cuEventRecord, start, nullptr);
    LaunchSpin();
    CALL(cuEventRecord, end, nullptr);
    CALL(cuEventSynchronize, end);
    CALL(cuEventElapsedTime, &milliseconds, start, end);
    shortest = std::min(shortest, milliseconds);
  }
  CALL(cuEventDestroy_v2, start);
  CALL(cuEventDestroy_v2, end);
  return double(shortest) * kMs;
}

std::string UuidOfGpu() {
  cuda::Uuid uuid{};
  if (const auto result = DRIVER(cuInit)(0); result != cuda::Result::kSuccess) {
    Exit(kSkipped, fmt::format("no GPU: cuInit returned {}", int(result)));
  }
  CALL(cuDeviceGetUuid, &uuid, 0);
  std::string text = "GPU-";
  const auto* bytes = reinterpret_cast<const unsigned char*>(&uuid);
  for (int i = 0; i < 16; ++i) {
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
  }
  return text;
}

nvml::Device NvmlDevice() {
  const std::string uuid = UuidOfGpu();
  nvml::Device device = nullptr;
  const bool found =
      NVML(nvmlInit_v2)() == nvml::Return::kSuccess &&
      NVML(nvmlDeviceGetHandleByUUID)(uuid.c_str(), &device) == nvml::Return::kSuccess;
  if (!found) Exit(1, "NVML does not know the GPU " + uuid);
  return device;
}

uint64_t UsedGpuBytes(nvml::Device device) {
  nvml::Memory memory{};
  const bool read = NVML(nvmlDeviceGetMemoryInfo)(device, &memory) == nvml::Return::kSuccess;
  if (!read) Exit(1, "nvmlDeviceGetMemoryInfo failed");
  return memory.used;
}

}  // namespace tessera::real_gpu

int main(int argc, char** argv) { return tessera::real_gpu::Main(argc, argv); }
