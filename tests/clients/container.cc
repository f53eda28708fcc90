// SPDX-License-Identifier: Apache-2.0
// Runs a program as in a container with a share of a GPU. The program finds the limiter in the
// place of the driver's libraries as in a pod: through the linker's cache and in the library
// directory of the distribution, and by no variable. It can use only as much as the limits allow.
//
//   client_container --driver DIR --gpu UUID --memory BYTES --compute SHARE -- PROGRAM [ARGUMENT
//   ...]
//
// DIR has the driver's libraries. SHARE is a part of the GPU's time, such as 0.3; 0: not limited.
// The program and its children get a mount namespace with its own /run, links and linker cache,
// which the kernel removes when the last of them ends. Needs root.
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
#include <utility>
#include <vector>

#include "src/base/file.h"
#include "src/limiter/limits_file.h"
#include "src/oci/ld_cache.h"
#include "src/oci/linker_setup.h"
#include "src/oci/rooted_dir.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr char kDir[] = "/run/tessera";

[[noreturn]] void Fail(const std::string& what) {
  fmt::print(stderr, "client_container: {}\n", what);
  std::exit(1);
}

void Mount(const char* source, const std::string& target, const char* type, unsigned long flags,
           const std::string& data = "") {
  if (::mount(source, target.c_str(), type, flags, data.c_str()) == 0) return;
  Fail(fmt::format("cannot mount {} at {}: {}", source, target, ::strerror(errno)));
}

void EnterPrivateRun() {
  if (::unshare(CLONE_NEWNS) != 0) {
    Fail(fmt::format("cannot enter a mount namespace of its own: {}: run as root",
                     ::strerror(errno)));
  }
  Mount("none", "/", nullptr, MS_REC | MS_PRIVATE);
  Mount("tmpfs", "/run", "tmpfs", 0);
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

// Lets the dynamic linker find the limiter. The code is the same by which tessera-runtime prepares
// the root of a container.
void SetUpLinker() {
  const std::vector<std::string> names = {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"};
  const std::string libraries = fmt::format("{}/lib", kDir);
  const Result<oci::RootedDir> root = oci::RootedDir::Open("/");
  if (!root.ok()) Fail(root.status().message());
  const std::string dir = oci::FindLibraryDir(*root);
  if (dir.empty()) Fail("this machine has no library directory");
  // The overlay takes the place of the container's writable layer.
  for (const char* name : {"upper", "work"}) fs::create_directories(fs::path(kDir) / name);
  Mount("overlay", "/" + dir, "overlay", 0,
        fmt::format("lowerdir=/{0},upperdir={1}/upper,workdir={1}/work", dir, kDir));
  const Status linked = oci::LinkLibraries(*root, dir, libraries, names);
  if (!linked.ok()) Fail(linked.message());

  const oci::LinkerSetup linker = oci::FindLinkerSetup(*root, /*read_only=*/true);
  if (linker.method != oci::LinkerSetup::Method::kMount) Fail(linker.fallback_reason);
  std::vector<oci::LdCacheEntry> entries;
  for (const std::string& name : names) {
    entries.push_back(
        {.name = name, .path = libraries + "/" + name, .flags = oci::NativeLdCacheFlags()});
  }
  const std::string cache = fmt::format("{}/ld.so.cache", kDir);
  const Status written = WriteFileAtomically(
      cache, oci::WriteLdCache(oci::MergeLdCaches(std::move(entries), linker.cache)), 0644);
  if (!written.ok()) Fail(written.message());
  Mount(cache.c_str(), "/etc/ld.so.cache", nullptr, MS_BIND);
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  int at = 1;
  for (; at + 1 < argc && std::string(argv[at]) != "--"; at += 2) options[argv[at]] = argv[at + 1];
  if (at + 1 >= argc || options.size() != 4) Fail("usage: see the head of container.cc");
  EnterPrivateRun();
  PlaceLibraries(options["--driver"]);
  WriteLimits(options["--gpu"], std::strtoull(options["--memory"].c_str(), nullptr, 10),
              std::strtod(options["--compute"].c_str(), nullptr));
  SetUpLinker();
  ::unsetenv("LD_LIBRARY_PATH");
  ::execvp(argv[at + 1], argv + at + 1);
  Fail(fmt::format("cannot run {}: {}", argv[at + 1], ::strerror(errno)));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
