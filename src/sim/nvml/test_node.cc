// SPDX-License-Identifier: Apache-2.0
#include "src/sim/nvml/test_node.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "src/base/status.h"

namespace tessera::nvml {
namespace {

constexpr std::uint32_t kGpus = 4;
constexpr std::uint32_t kLinksToPeer = 4;

void Join(sim::StateFile* image, std::uint32_t a, std::uint32_t b) {
  for (std::uint32_t i = 0; i < kLinksToPeer; ++i) {
    sim::NvLink& link = image->facts[a].links[i];
    link.active = 1;
    link.remote_type = kNvLinkGpu;
    link.remote_gpu = static_cast<std::int32_t>(b);
    link.remote_link = i;
    link.remote = image->facts[b].pci;
  }
}

// The profiles of an A100 with 80 GB.
constexpr sim::MigProfile kMigProfiles[] = {
    {"1g.10gb", 0, 19, 1, 1, 0x7F, 7, 14, 1, 0, 0, 0, 0, 9728ULL << 20},
    {"1g.10gb+me", 7, 20, 1, 1, 0x7F, 1, 14, 1, 1, 0, 1, 1, 9728ULL << 20},
    {"1g.20gb", 9, 15, 1, 2, 0x55, 4, 14, 1, 1, 0, 0, 0, 19968ULL << 20},
    {"2g.20gb", 1, 14, 2, 2, 0x15, 3, 28, 2, 1, 0, 0, 0, 19968ULL << 20},
    {"3g.40gb", 2, 9, 3, 4, 0x11, 2, 42, 3, 2, 0, 0, 0, 40192ULL << 20},
    {"4g.40gb", 3, 5, 4, 4, 0x01, 1, 56, 4, 2, 0, 0, 0, 40192ULL << 20},
    {"7g.80gb", 4, 0, 7, 8, 0x01, 1, 98, 7, 5, 0, 1, 1, 80640ULL << 20},
};

void FillFacts(sim::StateFile* image, std::uint32_t gpu) {
  sim::GpuFacts& facts = image->facts[gpu];
  std::snprintf(facts.uuid, sizeof(facts.uuid), "GPU-12345678-1234-1234-1234-12345678000%u", gpu);
  std::strcpy(facts.name, "NVIDIA A100-SXM4-80GB");
  std::snprintf(facts.serial, sizeof(facts.serial), "165052200000%u", gpu);
  std::strcpy(facts.vbios, "92.00.45.00.03");
  facts.minor = gpu;
  facts.brand = kBrandNvidia;
  facts.architecture = kArchAmpere;
  facts.cc_major = 8;
  facts.sm_count = 108;
  facts.mig_capable = 1;
  facts.max_mig_devices = 7;
  std::ranges::copy(kMigProfiles, facts.mig_profiles);
  facts.ecc_enabled = 1;
  facts.row_banks = 640;
  facts.pci = {0, 7 + gpu * 8, 0, 0};
  facts.pci_device_id = 0x20B210DE;
  facts.pci_subsystem_id = 0x146310DE;
  facts.pci_class = 0x030200;
  facts.pcie_gen_max = 4;
  facts.pcie_width_max = 16;
  facts.numa_node = static_cast<std::int32_t>(gpu / 2);
  facts.memory_bytes = 80ULL << 30;
  facts.reserved_bytes = 512ULL << 20;
  facts.clock_sm_max = facts.clock_graphics_max = 1410;
  facts.clock_sm_idle = facts.clock_graphics_idle = 210;
  facts.clock_mem_max = facts.clock_mem_idle = 1593;
  facts.power_limit_mw = facts.power_max_mw = 400000;
  facts.power_min_mw = 100000;
  facts.power_idle_mw = 60000;
  facts.temperature_idle_c = 30;
  facts.temperature_slowdown_c = 89;
  facts.temperature_memory_max_c = 95;
  facts.temperature_shutdown_c = 92;
  facts.nvlink_version = 3;
  facts.nvlink_count = 12;
  facts.nvlink_mbps = 25000;
  for (std::uint32_t other = 0; other < kGpus; ++other) {
    facts.pcie_level[other] = other == gpu           ? kTopologyInternal
                              : other / 2 == gpu / 2 ? kTopologyMultiple
                                                     : kTopologySystem;
  }
  sim::SimGpuState& gpu_state = image->gpu_states[gpu];
  gpu_state.temperature_c = gpu_state.memory_temperature_c = gpu_state.power_mw = sim::kDerived;
  gpu_state.ecc_mode_pending = facts.ecc_enabled;
  gpu_state.utilization_gpu = gpu_state.utilization_memory = sim::kDerived;
}

}  // namespace

TestNode::TestNode() : image_(std::make_unique<sim::StateFile>()) {
  std::string name = (std::filesystem::temp_directory_path() / "tessera-nvml-XXXXXX").string();
  TESSERA_CHECK(mkdtemp(name.data()) != nullptr);
  root_ = name;
  std::filesystem::create_directories(root_ + "/run/simgpu");
  std::filesystem::create_directories(root_ + "/dev");
  image_->magic = sim::kStateMagic;
  image_->version = sim::kStateVersion;
  image_->size = sizeof(sim::StateFile);
  image_->gpu_count = kGpus;
  image_->cuda_version = 13000;
  std::strcpy(image_->driver_version, "580.95.05");
  std::strcpy(image_->nvml_version, "13.580.95.05");
  for (std::uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    FillFacts(image_.get(), gpu);
    std::ofstream(root_ + "/dev/nvidia" + std::to_string(gpu)) << '\n';
  }
  for (std::uint32_t gpu = 0; gpu < kGpus; ++gpu) Join(image_.get(), gpu, gpu ^ 1);
  Write();
  TESSERA_CHECK(state_.Open(root_ + "/run/simgpu") == 0);
}

TestNode::~TestNode() { std::filesystem::remove_all(root_); }

void TestNode::Write() { TESSERA_CHECK(sim::State::Create(root_ + "/run/simgpu", *image_) == 0); }

void TestNode::RemoveDeviceNode(int minor) {
  std::filesystem::remove(root_ + "/dev/nvidia" + std::to_string(minor));
}

void TestNode::Export() const {
  setenv("SIMGPU_STATE_DIR", (root_ + "/run/simgpu").c_str(), 1);
  setenv("SIMGPU_DEV_ROOT", root_.c_str(), 1);
}

GpuUser::GpuUser(const std::string& state_dir, std::uint32_t gpu, std::uint64_t bytes) {
  int ready[2];
  TESSERA_CHECK(pipe(ready) == 0);
  pid_ = fork();
  if (pid_ == 0) {
    auto* state = new sim::State();  // lives as long as the child
    auto* slot = new sim::ProcessSlot();
    const bool good =
        state->Open(state_dir) == 0 && slot->Claim(state) == 0 && slot->Charge(gpu, bytes) == 0;
    if (!good) _exit(1);
    slot->AddContexts(gpu, 1);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ready[1]);
  char byte = 0;
  const bool started = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  TESSERA_CHECK(started);
}

GpuUser::~GpuUser() { Kill(); }

void GpuUser::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tessera::nvml
