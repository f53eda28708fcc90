// SPDX-License-Identifier: Apache-2.0
// Creates the first state of a node from a profile.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "src/sim/profile.h"

namespace tessera::sim {
namespace {

constexpr uint32_t kLinkToGpu = 0;
constexpr uint32_t kLinkToSwitch = 2;
constexpr uint32_t kFabricCompleted = 3;

// Buses of the GPUs on HGX boards, for sixteen GPUs.
constexpr uint32_t kBuses[kMaxGpus] = {0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd,
                                       0xc1, 0xc7, 0xcd, 0xd3, 0xd9, 0xdf, 0xe5, 0xeb};

template <size_t N>
void CopyText(std::string_view text, char (&out)[N]) {
  std::memset(out, 0, N);
  std::memcpy(out, text.data(), std::min(text.size(), N - 1));
}

// A hash of 64 bits (FNV-1a, then mixed, so that similar texts differ in all bits).
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (char c : text) hash = (hash ^ uint8_t(c)) * 1099511628211u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

std::string UuidOf(std::string_view seed) {
  const uint64_t high = HashOf(fmt::format("{}/high", seed));
  const uint64_t low = HashOf(fmt::format("{}/low", seed));
  return fmt::format("GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", uint32_t(high >> 32),
                     uint16_t(high >> 16), uint16_t(high), uint16_t(low >> 48),
                     low & 0xFFFFFFFFFFFF);
}

uint32_t LevelBetween(const Profile& profile, uint32_t a, uint32_t b) {
  if (a == b) return 0;
  if (a / 2 == b / 2) return profile.pcie_pair;
  const uint32_t half = (profile.gpus + 1) / 2;
  return a / half == b / half ? profile.pcie_half : profile.pcie_across;
}

// The number of the first link that is not connected; nvlink_count: none.
uint32_t FreeLink(const GpuFacts& gpu) {
  uint32_t link = 0;
  while (link < gpu.nvlink_count && gpu.links[link].active != 0) ++link;
  return link;
}

// Connects GPUs a and b by `count` links. False: one of them has too few free links.
bool Connect(StateFile* state, uint32_t a, uint32_t b, uint32_t count) {
  GpuFacts& gpu_a = state->facts[a];
  GpuFacts& gpu_b = state->facts[b];
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t link_a = FreeLink(gpu_a), link_b = FreeLink(gpu_b);
    if (link_a == gpu_a.nvlink_count || link_b == gpu_b.nvlink_count) return false;
    gpu_a.links[link_a] = {1, kLinkToGpu, int32_t(b), link_b, gpu_b.pci};
    gpu_b.links[link_b] = {1, kLinkToGpu, int32_t(a), link_a, gpu_a.pci};
  }
  return true;
}

void ConnectSwitches(const Profile& profile, StateFile* state, uint32_t gpu) {
  GpuFacts& facts = state->facts[gpu];
  const uint32_t links = profile.links != 0 ? profile.links : facts.nvlink_count;
  for (uint32_t i = 0; i < links; ++i) {
    // Six switches, as on HGX boards, each on a separate bus below the buses of GPUs.
    facts.links[i] = {1, kLinkToSwitch, -1, gpu * kMaxLinks + i, {0, 0x01 + i % 6, 0, 0}};
  }
}

Status ConnectGpus(const Profile& profile, StateFile* state) {
  std::vector<LinkPair> pairs = profile.link_list;
  const uint32_t group = profile.topology == LinkTopology::kPairs   ? 2
                         : profile.topology == LinkTopology::kQuads ? 4
                                                                    : 0;
  const uint32_t links_per_gpu = profile.gpu.nvlink_count;
  const uint32_t links_per_pair = profile.links != 0 ? profile.links
                                  : group == 2       ? links_per_gpu
                                                     : links_per_gpu / 3;
  for (uint32_t a = 0; group != 0 && a < profile.gpus; ++a) {
    for (uint32_t b = a + 1; b < profile.gpus && b / group == a / group; ++b) {
      pairs.push_back({a, b, links_per_pair});
    }
  }
  for (const LinkPair& pair : pairs) {
    if (pair.a >= profile.gpus || pair.b >= profile.gpus) continue;  // the node has fewer GPUs
    if (!Connect(state, pair.a, pair.b, pair.links)) {
      return Error(
          Code::kInvalidArgument,
          "profile {}: node.nvlink: GPUs {} and {} have too few free links for {} links between "
          "them: a GPU has {} (gpu.nvlinks)",
          profile.name, pair.a, pair.b, pair.links, links_per_gpu);
    }
  }
  for (uint32_t gpu = 0; gpu < profile.gpus && profile.topology == LinkTopology::kNvSwitch; ++gpu) {
    ConnectSwitches(profile, state, gpu);
  }
  return {};
}

void DeriveClocks(GpuFacts* gpu) {
  gpu->clock_sm_max = gpu->clock_graphics_max;
  gpu->clock_sm_idle = gpu->clock_graphics_idle;
  gpu->clock_video_idle = gpu->clock_graphics_idle;
  gpu->power_max_mw = gpu->power_limit_mw;
  gpu->registers_per_sm = 65536;
}

void FillGpu(const Profile& profile, std::string_view node_name, uint32_t index, GpuFacts* gpu) {
  *gpu = profile.gpu;
  DeriveClocks(gpu);
  const std::string seed = fmt::format("{}/{}/{}", node_name, profile.name, index);
  CopyText(profile.uuids.empty() ? UuidOf(seed) : profile.uuids[index], gpu->uuid);
  CopyText(fmt::format("1{:012}", HashOf(seed + "/serial") % 1'000'000'000'000), gpu->serial);
  gpu->minor = index;
  gpu->pci.bus = profile.pci_buses.empty() ? kBuses[index] : profile.pci_buses[index];
  gpu->numa_node =
      profile.numa_nodes == 0 ? -1 : int32_t(index * profile.numa_nodes / profile.gpus);
  for (uint32_t other = 0; other < profile.gpus; ++other) {
    gpu->pcie_level[other] = LevelBetween(profile, index, other);
  }
  // On Hopper and later, the fabric manager adds GPUs behind NVSwitch to a fabric.
  if (profile.topology == LinkTopology::kNvSwitch && gpu->cc_major >= 9) {
    gpu->fabric_state = kFabricCompleted;
  }
}

void InitGpuState(const GpuFacts& facts, SimGpuState* gpu_state) {
  gpu_state->ecc_mode_pending.store(facts.ecc_enabled);
  for (AtomicU32* value :
       {&gpu_state->temperature_c, &gpu_state->memory_temperature_c, &gpu_state->power_mw,
        &gpu_state->utilization_gpu, &gpu_state->utilization_memory}) {
    value->store(kDerived);
  }
}

}  // namespace

Result<std::unique_ptr<StateFile>> MakeState(const Profile& profile, std::string_view node_name) {
  if (profile.gpus == 0 || profile.gpus > kMaxGpus) {
    return Error(Code::kInvalidArgument, "{} GPUs: a node has 1 to {}", profile.gpus, kMaxGpus);
  }
  for (const auto& [field, count] : {std::pair("pci_buses", profile.pci_buses.size()),
                                     std::pair("uuids", profile.uuids.size())}) {
    if (count != 0 && count < profile.gpus) {
      return Error(Code::kInvalidArgument, "profile {}: node.{} has {} entries for {} GPUs",
                   profile.name, field, count, profile.gpus);
    }
  }
  auto state = std::make_unique<StateFile>();
  state->magic = kStateMagic;
  state->version = kStateVersion;
  state->size = sizeof(StateFile);
  state->generation = 1;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  state->created_ns = uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
  CopyText(node_name, state->node_name);
  CopyText(profile.name, state->profile);
  CopyText(profile.driver_version, state->driver_version);
  CopyText(fmt::format("{}.{}", profile.cuda_version / 1000, profile.driver_version),
           state->nvml_version);
  state->cuda_version = profile.cuda_version;
  state->gpu_count = profile.gpus;
  for (uint32_t i = 0; i < profile.gpus; ++i) {
    FillGpu(profile, node_name, i, &state->facts[i]);
    InitGpuState(state->facts[i], &state->gpu_states[i]);
  }
  RETURN_IF_ERROR(ConnectGpus(profile, state.get()));
  return state;
}

}  // namespace tessera::sim
