// SPDX-License-Identifier: Apache-2.0
// Adds two vectors on every GPU that the container was given, checks the sums on the host, and says
// which GPUs they were. It carries its kernel as PTX and uses nothing but the driver API, so the
// same binary runs on a real driver and on the simulated one.
//
//   vectoradd [--elements N] [--hold SECONDS]
//
// Exit code: 0 "Test PASSED"; 1 a call failed or a sum is wrong; 2 unusable arguments.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "samples/vectoradd/driver.h"

namespace {

// C = A + B, a thread for each element; as a compiler would write it for any GPU since Maxwell.
constexpr char kPtx[] = R"(
.version 6.0
.target sm_50
.address_size 64

.visible .entry vectorAdd(
    .param .u64 vectorAdd_param_0,
    .param .u64 vectorAdd_param_1,
    .param .u64 vectorAdd_param_2,
    .param .u32 vectorAdd_param_3)
{
    .reg .pred  %p<2>;
    .reg .f32   %f<4>;
    .reg .b32   %r<6>;
    .reg .b64   %rd<11>;

    ld.param.u64    %rd1, [vectorAdd_param_0];
    ld.param.u64    %rd2, [vectorAdd_param_1];
    ld.param.u64    %rd3, [vectorAdd_param_2];
    ld.param.u32    %r2, [vectorAdd_param_3];
    mov.u32         %r3, %ntid.x;
    mov.u32         %r4, %ctaid.x;
    mov.u32         %r5, %tid.x;
    mad.lo.s32      %r1, %r3, %r4, %r5;
    setp.ge.s32     %p1, %r1, %r2;
    @%p1 bra        DONE;
    cvta.to.global.u64  %rd4, %rd1;
    mul.wide.s32    %rd5, %r1, 4;
    add.s64         %rd6, %rd4, %rd5;
    cvta.to.global.u64  %rd7, %rd2;
    add.s64         %rd8, %rd7, %rd5;
    ld.global.f32   %f1, [%rd8];
    ld.global.f32   %f2, [%rd6];
    add.f32         %f3, %f2, %f1;
    cvta.to.global.u64  %rd9, %rd3;
    add.s64         %rd10, %rd9, %rd5;
    st.global.f32   [%rd10], %f3;
DONE:
    ret;
}
)";

constexpr unsigned kThreadsPerBlock = 256;

struct Arguments {
  int elements = 50000;
  unsigned hold_seconds = 0;
};

class Sample {
 public:
  Sample(const Driver& driver, int elements) : driver_(driver), elements_(elements) {}

  // Names the GPUs on standard output, one a line. -1 on an error, else their number.
  int ListGpus() {
    int count = 0;
    int version = 0;
    if (!Ok(driver_.Init(0), "cuInit")) return -1;
    if (!Ok(driver_.DriverGetVersion(&version), "cuDriverGetVersion")) return -1;
    if (!Ok(driver_.DeviceGetCount(&count), "cuDeviceGetCount")) return -1;
    std::printf("CUDA driver API %d.%d, %d GPU%s\n", version / 1000, version % 1000 / 10, count,
                count == 1 ? "" : "s");
    for (int i = 0; i < count; ++i) {
      char name[128] = "";
      CUuuid uuid;
      CUdevice device = 0;
      if (!Ok(driver_.DeviceGet(&device, i), "cuDeviceGet") ||
          !Ok(driver_.DeviceGetName(name, sizeof(name), device), "cuDeviceGetName") ||
          !Ok(driver_.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid")) {
        return -1;
      }
      std::printf("GPU %d: %s (UUID: %s)\n", i, name, UuidText(uuid).c_str());
    }
    return count;
  }

  // The context and its memory stay until the end of the program.
  bool AddOn(int ordinal) {
    CUdevice device = 0;
    void* context = nullptr;
    void* module = nullptr;
    void* kernel = nullptr;
    return Ok(driver_.DeviceGet(&device, ordinal), "cuDeviceGet") &&
           Ok(driver_.CtxCreate(&context, 0, device), "cuCtxCreate") &&
           Ok(driver_.ModuleLoadData(&module, kPtx), "cuModuleLoadData") &&
           Ok(driver_.ModuleGetFunction(&kernel, module, "vectorAdd"), "cuModuleGetFunction") &&
           AddWith(kernel);
  }

 private:
  bool AddWith(void* kernel) {
    const size_t bytes = static_cast<size_t>(elements_) * sizeof(float);
    std::vector<float> a(elements_);
    std::vector<float> b(elements_);
    std::vector<float> c(elements_, -1.0F);
    for (int i = 0; i < elements_; ++i) {
      a[i] = static_cast<float>(i % 1000) * 0.25F;
      b[i] = static_cast<float>(i % 777) * 0.5F;
    }
    CUdeviceptr da = 0;
    CUdeviceptr db = 0;
    CUdeviceptr dc = 0;
    void* parameters[] = {&da, &db, &dc, &elements_};
    const unsigned blocks =
        (static_cast<unsigned>(elements_) + kThreadsPerBlock - 1) / kThreadsPerBlock;
    std::printf("[Vector addition of %d elements, %u blocks of %u threads]\n", elements_, blocks,
                kThreadsPerBlock);
    const bool ran = Ok(driver_.MemAlloc(&da, bytes), "cuMemAlloc") &&
                     Ok(driver_.MemAlloc(&db, bytes), "cuMemAlloc") &&
                     Ok(driver_.MemAlloc(&dc, bytes), "cuMemAlloc") &&
                     Ok(driver_.MemcpyHtoD(da, a.data(), bytes), "cuMemcpyHtoD") &&
                     Ok(driver_.MemcpyHtoD(db, b.data(), bytes), "cuMemcpyHtoD") &&
                     Ok(driver_.LaunchKernel(kernel, blocks, 1, 1, kThreadsPerBlock, 1, 1, 0,
                                             nullptr, parameters, nullptr),
                        "cuLaunchKernel") &&
                     Ok(driver_.CtxSynchronize(), "cuCtxSynchronize") &&
                     Ok(driver_.MemcpyDtoH(c.data(), dc, bytes), "cuMemcpyDtoH");
    return ran && SumsAreRight(a, b, c);
  }

  static bool SumsAreRight(const std::vector<float>& a, const std::vector<float>& b,
                           const std::vector<float>& c) {
    for (size_t i = 0; i < c.size(); ++i) {
      if (std::fabs(a[i] + b[i] - c[i]) > 1e-5F) {
        std::fprintf(stderr, "element %zu: %g + %g gave %g\n", i, a[i], b[i], c[i]);
        return false;
      }
    }
    return true;
  }

  bool Ok(CUresult result, const char* call) const {
    if (result == 0) return true;
    const char* name = "unknown error";
    const char* text = "";
    driver_.GetErrorName(result, &name);
    driver_.GetErrorString(result, &text);
    std::fprintf(stderr, "%s failed: %s (%d): %s\n", call, name, result, text);
    return false;
  }

  static std::string UuidText(const CUuuid& uuid) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof(digits), "%02x", uuid.bytes[i]);
      if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
      text += digits;
    }
    return text;
  }

  const Driver& driver_;
  int elements_;
};

bool ParseNumber(const char* text, long least, long most, long* value) {
  char* end = nullptr;
  *value = std::strtol(text, &end, 10);
  return end != text && *end == '\0' && *value >= least && *value <= most;
}

bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; i += 2) {
    long value = 0;
    const bool known =
        std::strcmp(argv[i], "--hold") == 0 || std::strcmp(argv[i], "--elements") == 0;
    if (!known || i + 1 >= argc || !ParseNumber(argv[i + 1], 0, 1 << 28, &value)) return false;
    if (std::strcmp(argv[i], "--hold") == 0) arguments->hold_seconds = static_cast<unsigned>(value);
    if (std::strcmp(argv[i], "--elements") == 0) arguments->elements = static_cast<int>(value);
  }
  return arguments->elements > 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr, "usage: vectoradd [--elements N] [--hold SECONDS]\n");
    return 2;
  }
  Driver driver{};
  if (!LoadDriver(&driver)) return 1;
  Sample sample(driver, arguments.elements);
  const int gpus = sample.ListGpus();
  if (gpus == 0) std::fprintf(stderr, "there is no GPU in this container\n");
  if (gpus <= 0) return 1;
  for (int i = 0; i < gpus; ++i) {
    if (!sample.AddOn(i)) return 1;
  }
  std::printf("Test PASSED\n");
  if (arguments.hold_seconds > 0) {
    std::printf("holding for %u s\n", arguments.hold_seconds);
    ::sleep(arguments.hold_seconds);
  }
  return 0;
}
