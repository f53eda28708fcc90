// SPDX-License-Identifier: Apache-2.0
// The driver's libraries, as a program without the CUDA toolkit opens them: by dlopen and by name.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/cuda_abi.h"
#include "api/nvml_abi.h"

namespace tessera::real_gpu {

inline constexpr int kSkipped = 77;
inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr double kMs = 1e6;  // in nanoseconds

[[noreturn]] inline void Exit(int code, const std::string& why) {
  fmt::print(stderr, "real_gpu_experiments: {}\n", why);
  std::exit(code);
}

class Library {
 public:
  explicit Library(const char* name) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) Exit(kSkipped, fmt::format("no driver: {}", ::dlerror()));
  }
  void* handle() const { return handle_; }
  // Null: the driver does not export the symbol.
  template <typename Function>
  Function Find(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(handle_, name));
  }
  template <typename Function>
  Function Get(const char* name) const {
    const auto function = Find<Function>(name);
    if (function == nullptr) Exit(1, fmt::format("the driver does not export {}", name));
    return function;
  }

 private:
  void* handle_;
};

inline const Library& Cuda() {
  static const Library library("libcuda.so.1");
  return library;
}
inline const Library& Nvml() {
  static const Library library("libnvidia-ml.so.1");
  return library;
}

inline void Check(cuda::Result result, const char* call) {
  if (result != cuda::Result::kSuccess)
    Exit(1, fmt::format("{} failed: error {}", call, int(result)));
}

// Calls a function of the driver by name: DRIVER(cuInit)(0). CALL ends the program on an error.
#define DRIVER(name) ::tessera::real_gpu::Cuda().Get<::tessera::cuda::fn::name>(#name)
#define CALL(name, ...) ::tessera::real_gpu::Check(DRIVER(name)(__VA_ARGS__), #name)
#define NVML(name) ::tessera::real_gpu::Nvml().Get<::tessera::nvml::fn::name>(#name)

// Prints a row of the table: experiment, question, answer.
inline void Row(const char* experiment, const std::string& question, const std::string& answer) {
  fmt::print("{}\t{}\t{}\n", experiment, question, answer);
}

inline double NowNs() {
  return double(std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::steady_clock::now().time_since_epoch())
                    .count());
}

// The mean time of a call, in nanoseconds.
template <typename Call>
double NsOf(int count, Call call) {
  const double start = NowNs();
  for (int i = 0; i < count; ++i) call();
  return (NowNs() - start) / count;
}

// A context on GPU 0 and the kernels of the experiments. `spin` keeps the whole GPU busy for about
// kSpinMs.
struct Program {
  Program();
  void Launch(cuda::Function function, unsigned blocks, cuda::Stream stream = nullptr);
  void LaunchSpin(cuda::Stream stream = nullptr) { Launch(spin, spin_blocks, stream); }
  // The GPU time of one spin, in nanoseconds.
  double MeasureSpin();

  cuda::Context context = nullptr;
  cuda::Module module = nullptr;
  cuda::Function empty = nullptr, spin = nullptr;
  unsigned spin_blocks = 1, rounds = 20000;
  cuda::DevicePtr out = 0;
  static constexpr double kSpinMs = 2;
};

// The UUID of CUDA's GPU 0, as "GPU-…". Ends the program with kSkipped if there is no GPU.
std::string UuidOfGpu();
nvml::Device NvmlDevice();
// The GPU memory that all processes use, in bytes.
uint64_t UsedGpuBytes(nvml::Device device);

void RunFacts();     // E1, E2, E10
void RunMemory();    // E3, E4, E5
void RunLaunches();  // E6
// E3 under a limit: how much memory of each kind the driver allocates.
void RunCap();
void RunStamps();  // E11, while another program keeps the GPU busy
// E7 to E9: launches spins for `seconds`, and prints their number per second, once a second.
void RunSpin(const std::string& kind, double seconds);

}  // namespace tessera::real_gpu
