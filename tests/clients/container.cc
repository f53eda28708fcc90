// SPDX-License-Identifier: Apache-2.0
// Runs a program as in a container with a share of a GPU. The program finds the limiter in the
// place of the driver's libraries, and can use only as much as the limits allow.
//
//   client_container --driver DIR --gpu UUID --memory BYTES --compute SHARE -- PROGRAM [ARGUMENT
//   ...]
//
// DIR has the driver's libraries. SHARE is a part of the GPU's time, such as 0.3; 0: not limited.
// The program and its children get a mount namespace with its own /run, which the kernel removes
// when the last of them ends. Needs root.
#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/limiter/limits_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr char kDir[] = "/run/tessera";

[[noreturn]] void Fail(const std::string& what) {
  fmt::print(stderr, "client_container: {}\n", what);
  std::exit(1);
}

void EnterOwnRun() {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/run", "tmpfs", 0, nullptr) != 0) {
    Fail(fmt::format("cannot mount a /run of its own: {}: run as root", ::strerror(errno)));
  }
}

void PlaceLibraries(const fs::path& driver) {
  const fs::path dir(kDir);
  for (const char* name : {"real", "lib", "limits", "usage"}) fs::create_directories(dir / name);
  fs::create_symlink(driver / "libcuda.so.1", dir / "real/libcuda");
  fs::create_symlink(driver / "libnvidia-ml.so.1", dir / "real/libnvidia-ml");
  fs::copy_file(LIMITER_CUDA_LIBRARY, dir / "lib/libcuda.so.1");
  fs::create_symlink("libcuda.so.1", dir / "lib/libcuda.so");  // compilers look for this name
  fs::copy_file(LIMITER_NVML_LIBRARY, dir / "lib/libnvidia-ml.so.1");
}

void WriteLimits(const std::string& gpu, uint64_t memory, double compute) {
  limiter::LimitsFile limits;
  int error = limits.Open(fmt::format("{}/limits/{}", kDir, limiter::kLimitsFile).c_str());
  if (error == 0) error = limits.SetMemory(gpu.c_str(), memory);
  if (error == 0) error = limits.SetCompute(gpu.c_str(), compute, compute);
  if (error != 0) Fail(fmt::format("cannot write the limits of {}: {}", gpu, ::strerror(error)));
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  int at = 1;
  for (; at + 1 < argc && std::string(argv[at]) != "--"; at += 2) options[argv[at]] = argv[at + 1];
  if (at + 1 >= argc || options.size() != 4) Fail("usage: see the head of container.cc");
  EnterOwnRun();
  PlaceLibraries(options["--driver"]);
  WriteLimits(options["--gpu"], std::strtoull(options["--memory"].c_str(), nullptr, 10),
              std::strtod(options["--compute"].c_str(), nullptr));
  const char* const others = std::getenv("LD_LIBRARY_PATH");
  const std::string path = fmt::format("{}/lib{}{}", kDir, others == nullptr ? "" : ":",
                                       others == nullptr ? "" : others);
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  ::execvp(argv[at + 1], argv + at + 1);
  Fail(fmt::format("cannot run {}: {}", argv[at + 1], ::strerror(errno)));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
