// SPDX-License-Identifier: Apache-2.0
// Adds vectors on every visible GPU through the CUDA driver API; see README.md.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "api/cuda_abi.h"

namespace {

namespace cuda = tessera::cuda;
using cuda::DevicePtr;
using cuda::Result;

constexpr uint64_t kDefaultBytes = 3 * 50'000 * sizeof(float);
constexpr unsigned kThreadsPerBlock = 256;

// c[i] = a[i] + b[i] for i < n
constexpr char kPtx[] = R"ptx(
.version 6.0
.target sm_50
.address_size 64

.visible .entry vectorAdd(
    .param .u64 a,
    .param .u64 b,
    .param .u64 c,
    .param .u32 n
)
{
    .reg .pred  %p<2>;
    .reg .f32   %f<4>;
    .reg .b32   %r<6>;
    .reg .b64   %rd<11>;

    ld.param.u64        %rd1, [a];
    ld.param.u64        %rd2, [b];
    ld.param.u64        %rd3, [c];
    ld.param.u32        %r2, [n];
    mov.u32             %r3, %ctaid.x;
    mov.u32             %r4, %ntid.x;
    mov.u32             %r5, %tid.x;
    mad.lo.s32          %r1, %r3, %r4, %r5;
    setp.ge.s32         %p1, %r1, %r2;
    @%p1 bra            DONE;

    cvta.to.global.u64  %rd4, %rd1;
    cvta.to.global.u64  %rd5, %rd2;
    cvta.to.global.u64  %rd6, %rd3;
    mul.wide.s32        %rd7, %r1, 4;
    add.s64             %rd8, %rd4, %rd7;
    add.s64             %rd9, %rd5, %rd7;
    add.s64             %rd10, %rd6, %rd7;
    ld.global.f32       %f1, [%rd8];
    ld.global.f32       %f2, [%rd9];
    add.f32             %f3, %f1, %f2;
    st.global.f32       [%rd10], %f3;

DONE:
    ret;
}
)ptx";

void* Symbol(void* driver, const char* name) {
  void* symbol = dlsym(driver, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "%s is missing in libcuda.so.1\n", name);
    std::exit(1);
  }
  return symbol;
}

// The functions of the driver that are used here.
struct Driver {
  void* handle;
#define FUNCTION(name) cuda::fn::name name = reinterpret_cast<cuda::fn::name>(Symbol(handle, #name))
  FUNCTION(cuInit);
  FUNCTION(cuGetErrorName);
  FUNCTION(cuGetErrorString);
  FUNCTION(cuDeviceGetCount);
  FUNCTION(cuDeviceGet);
  FUNCTION(cuDeviceGetName);
  FUNCTION(cuDeviceGetUuid);
  FUNCTION(cuDevicePrimaryCtxRetain);
  FUNCTION(cuDevicePrimaryCtxRelease_v2);
  FUNCTION(cuCtxSetCurrent);
  FUNCTION(cuCtxSynchronize);
  FUNCTION(cuModuleLoadData);
  FUNCTION(cuModuleGetFunction);
  FUNCTION(cuMemAlloc_v2);
  FUNCTION(cuMemFree_v2);
  FUNCTION(cuMemcpyHtoD_v2);
  FUNCTION(cuMemcpyDtoH_v2);
  FUNCTION(cuLaunchKernel);
#undef FUNCTION
};

void Check(const Driver& driver, Result result, const char* call) {
  if (result == Result::kSuccess) return;
  const char* name = nullptr;
  const char* text = nullptr;
  (void)driver.cuGetErrorName(result, &name);
  (void)driver.cuGetErrorString(result, &text);
  std::fflush(stdout);
  std::fprintf(stderr, "%s failed: %s (%s)\n", call, name ? name : "unknown error code",
               text ? text : "no text");
  std::exit(1);
}
#define CALL(function, ...) Check(driver, driver.function(__VA_ARGS__), #function)

struct Options {
  uint64_t bytes = kDefaultBytes;
  unsigned busy_seconds = 0;
  unsigned hold_seconds = 0;
  bool expect_none = false;
};

struct Vectors {
  DevicePtr a = 0, b = 0, c = 0;
};

void PrintDevice(const Driver& driver, int ordinal, cuda::Device device) {
  char name[256] = "";
  cuda::Uuid uuid = {};
  CALL(cuDeviceGetName, name, int(sizeof(name)), device);
  CALL(cuDeviceGetUuid, &uuid, device);
  std::printf("GPU %d: %s (UUID: GPU-", ordinal, name);
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    std::printf("%s%02x", dash ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  std::printf(")\n");
}

volatile std::sig_atomic_t told_to_end = 0;

double Seconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + double(now.tv_nsec) / 1e9;
}

// Launches once, or again and again for so long.
void Launch(const Driver& driver, const Vectors& vectors, unsigned n, unsigned busy_seconds) {
  constexpr unsigned kAtOnce = 16;
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  CALL(cuModuleLoadData, &module, kPtx);
  CALL(cuModuleGetFunction, &function, module, "vectorAdd");
  Vectors arguments = vectors;
  void* parameters[] = {&arguments.a, &arguments.b, &arguments.c, &n};
  const unsigned blocks = (n + kThreadsPerBlock - 1) / kThreadsPerBlock;
  std::printf("CUDA kernel launch with %u blocks of %u threads\n", blocks, kThreadsPerBlock);
  std::fflush(stdout);
  const double start = Seconds();
  unsigned long launches = 0;
  do {
    for (unsigned i = 0; i < (busy_seconds == 0 ? 1 : kAtOnce); ++i, ++launches) {
      CALL(cuLaunchKernel, function, blocks, 1, 1, kThreadsPerBlock, 1, 1, 0, nullptr, parameters,
           nullptr);
    }
    CALL(cuCtxSynchronize);
  } while (told_to_end == 0 && Seconds() < start + busy_seconds);
  if (busy_seconds != 0) std::printf("%lu launches in %.1f s\n", launches, Seconds() - start);
}

float ValueOfA(unsigned i) { return float(i % 1000) * 0.5f; }
float ValueOfB(unsigned i) { return float(i % 777) * 0.25f; }

// The host has one part of a vector at a time, so that it needs little memory of its own.
constexpr unsigned kPart = 1u << 24;

void Fill(const Driver& driver, DevicePtr vector, unsigned n, float (*value)(unsigned)) {
  std::vector<float> part(std::min(n, kPart));
  for (unsigned begin = 0; begin < n; begin += kPart) {
    const unsigned count = std::min(kPart, n - begin);
    for (unsigned i = 0; i < count; ++i) part[i] = value(begin + i);
    CALL(cuMemcpyHtoD_v2, vector + begin * sizeof(float), part.data(), count * sizeof(float));
  }
}

void CheckSum(const Driver& driver, DevicePtr sum, unsigned n) {
  std::vector<float> part(std::min(n, kPart));
  for (unsigned begin = 0; begin < n; begin += kPart) {
    const unsigned count = std::min(kPart, n - begin);
    CALL(cuMemcpyDtoH_v2, part.data(), sum + begin * sizeof(float), count * sizeof(float));
    for (unsigned i = 0; i < count; ++i) {
      const float a = ValueOfA(begin + i), b = ValueOfB(begin + i);
      if (part[i] == a + b) continue;
      std::fprintf(stderr, "Result verification failed at element %u: %g + %g gave %g\n", begin + i,
                   a, b, part[i]);
      std::exit(1);
    }
  }
}

// Adds on the device that is current; its memory stays allocated.
Vectors AddVectors(const Driver& driver, uint64_t bytes, unsigned busy_seconds) {
  const auto n = static_cast<unsigned>(bytes / 3 / sizeof(float));
  const size_t size = size_t(n) * sizeof(float);
  std::printf("[Vector addition of %u elements]\n", n);
  Vectors vectors;
  CALL(cuMemAlloc_v2, &vectors.a, size);
  CALL(cuMemAlloc_v2, &vectors.b, size);
  CALL(cuMemAlloc_v2, &vectors.c, size);
  Fill(driver, vectors.a, n, ValueOfA);
  Fill(driver, vectors.b, n, ValueOfB);
  Launch(driver, vectors, n, busy_seconds);
  CheckSum(driver, vectors.c, n);
  return vectors;
}

void Hold(unsigned seconds) {
  std::printf("holding for %u seconds\n", seconds);
  std::fflush(stdout);
  timespec rest = {time_t(seconds), 0};
  while (told_to_end == 0 && nanosleep(&rest, &rest) != 0 && errno == EINTR) {
  }
}

// A whole number in [low, high], or the program ends with a hint.
uint64_t Number(const char* option, const char* text, uint64_t low, uint64_t high) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = text == nullptr ? 0 : std::strtoull(text, &end, 10);
  if (text == nullptr || end == text || *end != '\0' || errno != 0 || value < low || value > high) {
    std::fprintf(stderr, "%s wants a number from %llu to %llu\n", option,
                 static_cast<unsigned long long>(low), static_cast<unsigned long long>(high));
    std::exit(64);
  }
  return value;
}

constexpr char kUsage[] =
    "usage: vectoradd [--bytes N] [--busy SECONDS] [--hold SECONDS] | --expect-none | --help | "
    "--version\n";

// Ends the program for those who only ask about it.
void AnswerQuestions(const char* argument) {
  if (std::strcmp(argument, "--version") == 0) {
    std::printf("%s\n", TESSERA_VERSION);
    std::exit(0);
  }
  if (std::strcmp(argument, "--help") != 0 && std::strcmp(argument, "-h") != 0) return;
  std::printf("%s", kUsage);
  std::printf(
      "Adds vectors on every visible GPU and checks the sums.\n"
      "  --bytes N        memory to use on each GPU (600000)\n"
      "  --busy SECONDS   add again and again for so long, or until SIGTERM\n"
      "  --hold SECONDS   keep the memory for so long afterwards, or until SIGTERM\n"
      "  --expect-none    succeed if no GPU is visible\n");
  std::exit(0);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  if (argc == 2) AnswerQuestions(argv[1]);
  options.expect_none = argc == 2 && std::strcmp(argv[1], "--expect-none") == 0;
  if (options.expect_none) return options;
  for (int i = 1; i < argc; i += 2) {
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (std::strcmp(argv[i], "--busy") == 0) {
      options.busy_seconds = unsigned(Number(argv[i], value, 0, 1'000'000));
    } else if (std::strcmp(argv[i], "--hold") == 0) {
      options.hold_seconds = unsigned(Number(argv[i], value, 0, 1'000'000));
    } else if (std::strcmp(argv[i], "--bytes") == 0) {
      options.bytes = Number(argv[i], value, 3 * sizeof(float), uint64_t(24) << 30);
    } else {
      std::fputs(kUsage, stderr);
      std::exit(64);
    }
  }
  return options;
}

// `library` may be null.
int VisibleGpus(void* library) {
  if (library == nullptr) return 0;
  const Driver driver{library};
  int count = 0;
  const bool counted =
      driver.cuInit(0) == Result::kSuccess && driver.cuDeviceGetCount(&count) == Result::kSuccess;
  return counted ? count : 0;
}

// The exit code.
int ExpectNone(void* library) {
  const int count = VisibleGpus(library);
  std::printf("%d GPUs visible, %s\n", count,
              count == 0 ? "as it should be" : "and none should be");
  return count == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (options.expect_none) return ExpectNone(library);
  if (library == nullptr) {
    std::fprintf(stderr, "there is no CUDA driver: %s\n", dlerror());
    return 1;
  }
  // SIGTERM does not end the first process of a container unless it has a handler; without one,
  // deleting the pod takes the whole grace period.
  std::signal(SIGTERM, [](int) { told_to_end = 1; });
  const Driver driver{library};
  CALL(cuInit, 0);
  int count = 0;
  CALL(cuDeviceGetCount, &count);
  std::printf("%d GPU%s visible\n", count, count == 1 ? "" : "s");
  std::vector<Vectors> kept;
  for (int i = 0; i < count; ++i) {
    cuda::Device device = 0;
    cuda::Context context = nullptr;
    CALL(cuDeviceGet, &device, i);
    PrintDevice(driver, i, device);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    kept.push_back(AddVectors(driver, options.bytes, options.busy_seconds));
  }
  std::printf("Test PASSED\n");
  if (options.hold_seconds != 0) Hold(options.hold_seconds);
  for (int i = 0; i < count; ++i) {
    cuda::Context context = nullptr;
    CALL(cuDevicePrimaryCtxRetain, &context, i);
    CALL(cuCtxSetCurrent, context);
    for (DevicePtr pointer : {kept[size_t(i)].a, kept[size_t(i)].b, kept[size_t(i)].c}) {
      CALL(cuMemFree_v2, pointer);
    }
    CALL(cuDevicePrimaryCtxRelease_v2, i);
    CALL(cuDevicePrimaryCtxRelease_v2, i);
  }
  return 0;
}
