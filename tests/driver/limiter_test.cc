// SPDX-License-Identifier: Apache-2.0
// The limiter in front of NVIDIA's own libraries, which also load on a machine without a GPU, and
// report that there is none.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>

#include "api/cuda_abi.h"
#include "api/nvml_abi.h"
#include "src/base/file.h"
#include "src/limiter/limits_file.h"
#include "src/sim/testing/driver_records.h"
#include "tests/driver/driver_packages.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using sim::testing::RecordedAddress;
using ::testing::IsEmpty;

constexpr char kDir[] = "/run/tessera";

class LimiterOnRealDriver : public ::testing::TestWithParam<tessera::testing::Generation> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace of its own";
    const auto packages = tessera::testing::FetchDriverPackages(GetParam());
    if (!packages.ok()) {
      GTEST_SKIP() << "NVIDIA's packages cannot be downloaded: " << packages.status().message();
    }
    libraries_ =
        fmt::format("{}/{}/nvidia/{}", *packages, tessera::testing::kLibraryDir, GetParam().folder);
  }

  // Runs `body` in a process that sees the limiter as a limited container does. Each driver needs a
  // process of its own, because a loaded driver cannot be unloaded.
  void Run(const std::function<void()>& body) const {
    const pid_t child = ::fork();
    if (child == 0) {
      MakeContainer();
      if (!::testing::Test::HasFailure()) body();
      std::fflush(nullptr);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "the process has crashed, or printed its failures above";
  }

  static void* Open(const char* library) {
    void* handle = ::dlopen((std::string(kDir) + "/lib/" + library).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << ::dlerror();
    return handle;
  }

 private:
  const ::tessera::testing::NoNewDeviceNodes no_new_device_nodes_;

  void MakeContainer() const {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount("tmpfs", "/run", "tmpfs", 0, nullptr), 0);
    for (const char* name : {"real", "lib", "limits", "usage"}) {
      fs::create_directories(fs::path(kDir) / name);
    }
    for (const std::string library : {"libcuda", "libnvidia-ml"}) {
      fs::copy_file(fs::canonical(libraries_ + "/" + library + ".so.1"),
                    fs::path(kDir) / "real" / library);
    }
    fs::copy_file(LIMITER_CUDA_LIBRARY, fs::path(kDir) / "lib/libcuda.so.1");
    fs::copy_file(LIMITER_NVML_LIBRARY, fs::path(kDir) / "lib/libnvidia-ml.so.1");
    limiter::LimitsFile limits;
    ASSERT_EQ(limits.Open("/run/tessera/limits/limits"), 0);
  }

  std::string libraries_;
};
INSTANTIATE_TEST_SUITE_P(Debian, LimiterOnRealDriver,
                         ::testing::ValuesIn(tessera::testing::kGenerations),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(LimiterOnRealDriver, ReportsThatThereIsNoGpu) {
  Run([] {
    void* cuda = Open("libcuda.so.1");
    const auto init = reinterpret_cast<cuda::fn::cuInit>(::dlsym(cuda, "cuInit"));
    EXPECT_EQ(init(0), cuda::Result::kNoDevice);
    const auto count =
        reinterpret_cast<cuda::fn::cuDeviceGetCount>(::dlsym(cuda, "cuDeviceGetCount"));
    int devices = -1;
    EXPECT_NE(count(&devices), cuda::Result::kSuccess);
    void* nvml = Open("libnvidia-ml.so.1");
    const auto nvml_init = reinterpret_cast<nvml::fn::nvmlInit_v2>(::dlsym(nvml, "nvmlInit_v2"));
    EXPECT_EQ(nvml_init(), nvml::Return::kDriverNotLoaded);
    nvml::Memory memory = {};
    const auto info = reinterpret_cast<nvml::fn::nvmlDeviceGetMemoryInfo>(
        ::dlsym(nvml, "nvmlDeviceGetMemoryInfo"));
    EXPECT_EQ(info(nullptr, &memory), nvml::Return::kUninitialized);
  });
}

TEST_P(LimiterOnRealDriver, EveryExportOfTheDriverIsFound) {
  for (const char* library : {"libcuda", "libnvidia-ml"}) {
    const auto exports = sim::testing::RecordedExports(library, GetParam().version);
    if (!exports.ok()) GTEST_SKIP() << exports.status().message();
    Run([&] {
      void* handle = Open((std::string(library) + ".so.1").c_str());
      std::set<std::string> missing;
      for (const std::string& symbol : *exports) {
        if (::dlsym(handle, symbol.c_str()) == nullptr) missing.insert(symbol);
      }
      EXPECT_THAT(missing, IsEmpty());
      EXPECT_GT(exports->size(), 200u);
    });
  }
}

// Compares with the driver's own answers, except that the limiter's functions replace some of the
// driver's.
TEST_P(LimiterOnRealDriver, GetProcAddressAnswersLikeTheDriver) {
  const auto recorded = sim::testing::RecordedAddresses(GetParam().version);
  if (!recorded.ok()) GTEST_SKIP() << recorded.status().message();
  Run([&] {
    void* cuda = Open("libcuda.so.1");
    const auto plain =
        reinterpret_cast<cuda::fn::cuGetProcAddress>(::dlsym(cuda, "cuGetProcAddress"));
    const auto with_status =
        reinterpret_cast<cuda::fn::cuGetProcAddress_v2>(::dlsym(cuda, "cuGetProcAddress_v2"));
    std::set<std::string> differences;
    for (const RecordedAddress& theirs : *recorded) {
      for (const int version : {theirs.first_version, theirs.last_version}) {
        void* found = nullptr;
        int status = theirs.status;
        const char* name = theirs.name.c_str();
        const cuda::Result result = theirs.status == -1
                                        ? plain(name, &found, version, theirs.flags)
                                        : with_status(name, &found, version, theirs.flags, &status);
        void* wanted = theirs.symbol.empty() ? nullptr : ::dlsym(cuda, theirs.symbol.c_str());
        const bool same =
            int(result) == theirs.result && status == theirs.status && found == wanted;
        if (!same) {
          differences.insert(fmt::format("{}, flags {}, CUDA {}: {}/{}", name, theirs.flags,
                                         version, int(result), status));
        }
      }
    }
    EXPECT_THAT(differences, IsEmpty());
  });
}

}  // namespace
}  // namespace tessera
