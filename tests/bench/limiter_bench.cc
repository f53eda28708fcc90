// SPDX-License-Identifier: Apache-2.0
// Compares calls through the limiter with the same calls of the driver alone, in one run. The
// driver does nothing (null_cuda.c), so that its time does not hide the time of the limiter.
//   limiter_bench          needs root, for a mount namespace of its own
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api/cuda_abi.h"
#include "src/limiter/limits_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr char kDir[] = "/run/tessera";
constexpr char kGpu[] = "GPU-00000000-0000-0000-0000-000000000001";
constexpr uint64_t kGiB = uint64_t(1) << 30;
constexpr int kRounds = 9;
constexpr int kTogether = 300;
constexpr int kLookUps = 440;  // look-ups that a CUDA runtime makes at its start

class Library {
 public:
  explicit Library(const std::string& path)
      : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      fmt::print(stderr, "limiter_bench: {}\n", ::dlerror());
      std::exit(1);
    }
  }
  template <typename Function>
  Function Get(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

// The median over rounds of the nanoseconds that one of `count` calls takes.
double Nanoseconds(int count, const std::function<void(int)>& calls) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    calls(count);
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / count);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

struct Costs {
  std::vector<std::pair<std::string, double>> ns_by_call;
};

// `set_compute` sets the compute limit of the container, as a multiple of the GPU; 0: none.
Costs Measure(const Library& cuda, const std::function<void(double)>& set_compute) {
  Costs costs;
  const auto init = cuda.Get<cuda::fn::cuInit>("cuInit");
  const auto allocate = cuda.Get<cuda::fn::cuMemAlloc_v2>("cuMemAlloc_v2");
  const auto release = cuda.Get<cuda::fn::cuMemFree_v2>("cuMemFree_v2");
  const auto info = cuda.Get<cuda::fn::cuMemGetInfo_v2>("cuMemGetInfo_v2");
  const auto find = cuda.Get<cuda::fn::cuGetProcAddress_v2>("cuGetProcAddress_v2");
  if (init(0) != cuda::Result::kSuccess) std::exit(1);
  std::vector<cuda::DevicePtr> live;
  for (const size_t count : {0, 1000, 100'000, 1'000'000}) {
    live.resize(count);
    for (cuda::DevicePtr& pointer : live) {
      if (pointer == 0 && allocate(&pointer, 2 << 20) != cuda::Result::kSuccess) std::exit(1);
    }
    costs.ns_by_call.emplace_back(fmt::format("cuMemAlloc + cuMemFree, {} live", count),
                                  Nanoseconds(200'000, [&](int calls) {
                                    for (int i = 0; i < calls; ++i) {
                                      cuda::DevicePtr pointer = 0;
                                      allocate(&pointer, 4 << 20);
                                      release(pointer);
                                    }
                                  }));
  }
  costs.ns_by_call.emplace_back("cuMemAlloc + cuMemFree of 1 KiB",
                                Nanoseconds(200'000, [&](int calls) {
                                  for (int i = 0; i < calls; ++i) {
                                    cuda::DevicePtr pointer = 0;
                                    allocate(&pointer, 1024);
                                    release(pointer);
                                  }
                                }));
  costs.ns_by_call.emplace_back("cuMemGetInfo", Nanoseconds(1'000'000, [&](int calls) {
                                  size_t free = 0, total = 0;
                                  for (int i = 0; i < calls; ++i) info(&free, &total);
                                }));
  const auto launch = cuda.Get<cuda::fn::cuLaunchKernel>("cuLaunchKernel");
  const auto launches = [&](int calls) {
    const auto function = reinterpret_cast<cuda::Function>(&live);
    for (int i = 0; i < calls; ++i)
      launch(function, 100, 1, 1, 256, 1, 1, 0, nullptr, nullptr, nullptr);
  };
  set_compute(0);
  costs.ns_by_call.emplace_back("cuLaunchKernel, compute not limited",
                                Nanoseconds(10'000'000, launches));
  // A limit above the whole GPU, so that no launch waits.
  set_compute(1000);
  costs.ns_by_call.emplace_back("cuLaunchKernel, compute limited",
                                Nanoseconds(10'000'000, launches));
  set_compute(0);
  costs.ns_by_call.emplace_back(fmt::format("{} look-ups by cuGetProcAddress", kLookUps),
                                Nanoseconds(1000, [&](int calls) {
                                  void* function = nullptr;
                                  for (int i = 0; i < calls * kLookUps; ++i)
                                    find("cuMemAlloc", &function, 12000, 0, nullptr);
                                }));
  return costs;
}

constexpr int kLaunches = 20'000;

// A program that launches a short kernel after each few microseconds of its own work.
double SecondsOfLaunches(cuda::fn::cuLaunchKernel launch) {
  constexpr int kSteps = 2'000;  // a step takes about a nanosecond
  static volatile uint64_t result = 1;
  uint64_t work = result;
  const auto function = reinterpret_cast<cuda::Function>(&work);
  const auto start = Clock::now();
  for (int i = 0; i < kLaunches; ++i) {
    for (int step = 0; step < kSteps; ++step) work = work * 6364136223846793005u + 1;
    launch(function, 100, 1, 1, 256, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  result = work;
  return took;
}

// Runs the launches with each library in turn, and compares the shortest times: other processes
// only make a run longer.
void PrintOverhead(const Library& alone, const Library& limited) {
  double times[2] = {1e9, 1e9};
  for (int round = 0; round < 31; ++round) {
    int i = 0;
    for (const Library* cuda : {&alone, &limited}) {
      const auto launch = cuda->Get<cuda::fn::cuLaunchKernel>("cuLaunchKernel");
      times[i] = std::min(times[i], SecondsOfLaunches(launch));
      ++i;
    }
  }
  fmt::print("a program that launches every {:.1f} us, no compute limit: {:+.2f} % of its time\n",
             times[0] / kLaunches * 1e6, 100 * (times[1] / times[0] - 1));
}

// The median time in microseconds until a new process has loaded the library and called cuInit.
double StartMicroseconds(const std::string& path) {
  std::vector<double> times;
  for (int i = 0; i < 101; ++i) {
    int result[2];
    if (::pipe(result) != 0) std::exit(1);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const auto start = Clock::now();
      Library(path).Get<cuda::fn::cuInit>("cuInit")(0);
      const double took = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      ::_exit(::write(result[1], &took, sizeof(took)) == sizeof(took) ? 0 : 1);
    }
    double took = 0;
    if (::read(result[0], &took, sizeof(took)) != sizeof(took)) std::exit(1);
    times.push_back(took);
    ::close(result[0]);
    ::close(result[1]);
    ::waitpid(pid, nullptr, 0);
  }
  std::nth_element(times.begin(), times.begin() + 50, times.end());
  return times[50];
}

// The shortest of five times in milliseconds until kTogether processes, which start together, have
// loaded the library and called cuInit.
double StartTogetherMilliseconds(const std::string& path) {
  double shortest = 1e9;
  for (int round = 0; round < 5; ++round) {
    int start[2];
    if (::pipe2(start, O_CLOEXEC) != 0) std::exit(1);
    std::vector<pid_t> pids;
    for (int i = 0; i < kTogether; ++i) {
      const pid_t pid = ::fork();
      if (pid != 0) {
        pids.push_back(pid);
        continue;
      }
      ::close(start[1]);
      char end = 0;
      if (::read(start[0], &end, 1) != 0) ::_exit(1);  // until the parent closes the pipe
      ::_exit(Library(path).Get<cuda::fn::cuInit>("cuInit")(0) == cuda::Result::kSuccess ? 0 : 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // all processes wait now
    const auto begin = Clock::now();
    ::close(start[0]);
    ::close(start[1]);
    for (const pid_t pid : pids) {
      int status = 0;
      if (::waitpid(pid, &status, 0) != pid || status != 0) std::exit(1);
    }
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    shortest = std::min(shortest, took);
  }
  return shortest;
}

bool MakeContainer(limiter::LimitsFile* limits) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/run", "tmpfs", 0, nullptr) != 0) {
    return false;
  }
  for (const char* name : {"real", "lib", "limits", "usage"})
    fs::create_directories(fs::path(kDir) / name);
  fs::copy_file(NULL_CUDA_LIBRARY, fs::path(kDir) / "real/libcuda");
  fs::copy_file(LIMITER_CUDA_LIBRARY, fs::path(kDir) / "lib/libcuda.so.1");
  return limits->Open((std::string(kDir) + "/limits/limits").c_str()) == 0 &&
         limits->SetMemory(kGpu, 4096 * kGiB) == 0;
}

int Run() {
  limiter::LimitsFile limits;
  if (!MakeContainer(&limits)) {
    fmt::print(stderr, "limiter_bench: needs root, for a mount namespace of its own\n");
    return 1;
  }
  const std::string driver = std::string(kDir) + "/real/libcuda",
                    limited = std::string(kDir) + "/lib/libcuda.so.1";
  const double start_alone = StartMicroseconds(driver), start_limited = StartMicroseconds(limited);
  const auto set_compute = [&](double limit) {
    if (limits.SetCompute(kGpu, limit, limit) != 0) std::exit(1);
  };
  const Costs alone = Measure(Library(driver), set_compute),
              with = Measure(Library(limited), set_compute);
  // Later measures in this container would add up the slots of all these processes.
  const double together_alone = StartTogetherMilliseconds(driver),
               together_limited = StartTogetherMilliseconds(limited);
  fmt::print("{:45} {:>12} {:>12} {:>12}\n", "nanoseconds, median of 9", "driver alone", "limited",
             "added");
  for (size_t i = 0; i < alone.ns_by_call.size(); ++i) {
    fmt::print("{:45} {:12.1f} {:12.1f} {:12.1f}\n", alone.ns_by_call[i].first,
               alone.ns_by_call[i].second, with.ns_by_call[i].second,
               with.ns_by_call[i].second - alone.ns_by_call[i].second);
  }
  fmt::print("{:45} {:12.1f} {:12.1f} {:12.1f}\n", "process start to cuInit, microseconds",
             start_alone, start_limited, start_limited - start_alone);
  fmt::print("{:45} {:12.1f} {:12.1f} {:12.1f}\n",
             fmt::format("{} processes start together, milliseconds", kTogether), together_alone,
             together_limited, together_limited - together_alone);
  PrintOverhead(Library(driver), Library(limited));
  return 0;
}

}  // namespace
}  // namespace tessera

int main() { return tessera::Run(); }
