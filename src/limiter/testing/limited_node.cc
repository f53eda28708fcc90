// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/testing/limited_node.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "src/limiter/region/shared_pieces.h"
#include "src/limiter/region/slots.h"

namespace tessera::limiter::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kProfile[] =
    "base: a100-sxm4-80gb\ngpu:\n  memory_mib: 4096\n  reserved_mib: 96\n  context_mib: 10\n"
    "node:\n  gpus: 2\n  nvlink: none\n";

constexpr char kUsage[] = "/run/tessera/usage/usage";

bool EnterOwnRun() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/run", "tmpfs", 0, nullptr) == 0;
}

}  // namespace

bool LimitedNode::Possible() {
  static const bool possible = EnterOwnRun();
  return possible;
}

LimitedNode::LimitedNode(const std::vector<uint64_t>& memory, const std::string& profile)
    : node_({.profile = profile.empty() ? kProfile : profile}) {
  const fs::path dir(kContainerDir);
  fs::remove_all(dir);
  for (const char* name : {"real", "lib", "limits", "usage"}) fs::create_directories(dir / name);
  fs::create_symlink(node_.library("libcuda.so.1"), dir / "real/libcuda");
  fs::copy_file(LIMITER_CUDA_LIBRARY, dir / "lib/libcuda.so.1");
  fs::create_symlink(node_.library("libnvidia-ml.so.1"), dir / "real/libnvidia-ml");
#ifdef LIMITER_NVML_LIBRARY
  fs::copy_file(LIMITER_NVML_LIBRARY, dir / "lib/libnvidia-ml.so.1");
#endif
  if (limits_.Open((dir / "limits/limits").c_str()) != 0) std::abort();
  if (MakeUsage(kUsage) != 0 || MapUsage(kUsage, &usage_) != 0) std::abort();
  for (uint32_t i = 0; i < memory.size(); ++i) SetMemory(i, memory[i]);
}

void LimitedNode::SetMemory(uint32_t gpu, uint64_t bytes) {
  if (limits_.SetMemory(node_.state().facts(gpu).uuid, bytes) != 0) std::abort();
}

void LimitedNode::SetUnaccounted(uint32_t gpu, uint64_t bytes) {
  if (limits_.SetUnaccounted(node_.state().facts(gpu).uuid, bytes) != 0) std::abort();
}

void LimitedNode::SetCompute(uint32_t gpu, double share) {
  if (limits_.SetCompute(node_.state().facts(gpu).uuid, share, share) != 0) std::abort();
}

const GpuUsage& LimitedNode::usage(uint32_t gpu) { return usage_->gpus[gpu]; }

uint64_t LimitedNode::Held(uint32_t gpu) {
  uint64_t held = 0;
  for (const auto& bytes : usage_->gpus[gpu].held) held += bytes;
  return held - DuplicateBytes(*usage_, int(gpu));
}

bool LimitedNode::WaitUntilSettled(uint32_t gpu) {
  for (int i = 0; i < 10'000 && compute(gpu).slots[0].in_flight != 0; ++i) ::usleep(1000);
  return compute(gpu).slots[0].in_flight == 0;
}

void LimitedNode::Sweep() { (void)SweepSlots(kUsage, usage_); }

int LimitedNode::Start(const Body& body) {
  const int pid = ::fork();
  if (pid != 0) return pid;
  body(cuda::CudaLibrary(std::string(kContainerDir) + "/lib/libcuda.so.1"));
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

bool LimitedNode::Run(const Body& body) {
  int status = 0;
  const int pid = Start(body);
  return ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace tessera::limiter::testing
