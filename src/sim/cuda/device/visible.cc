// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/device/visible.h"

#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace tessera::cuda {
namespace {

// The index in `gpus` of the GPU that an entry names; -1: no GPU, or several.
int Match(const sim::State& state, const std::vector<uint32_t>& gpus, std::string_view entry) {
  if (entry.starts_with("GPU-")) {
    int found = -1;
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (!std::string_view(state.facts(gpus[i]).uuid).starts_with(entry)) continue;
      if (found >= 0) return -1;
      found = int(i);
    }
    return found;
  }
  char* end = nullptr;
  const std::string text(entry);
  const long index = strtol(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || index < 0 || size_t(index) >= gpus.size()) return -1;
  return int(index);
}

// The compute instance with that UUID on one of the GPUs. The old form of the UUID is
// "MIG-GPU-<uuid>/<GPU instance>/<compute instance>".
std::vector<VisibleDevice> MatchInstance(const sim::State& state, const std::vector<uint32_t>& gpus,
                                         std::string_view uuid) {
  for (const uint32_t gpu : gpus) {
    const sim::SimGpuState& gpu_state = state.file().gpu_states[gpu];
    for (uint32_t instance = 0; instance < sim::kMaxInstances; ++instance) {
      const sim::ComputeInstance& compute = gpu_state.compute_instances[instance];
      if (compute.present.load() == 0 || !state.MayUse(gpu, instance)) continue;
      const uint32_t parent = gpu_state.gpu_instances[compute.gpu_instance.load()].id.load();
      const std::string old = std::string("MIG-") + state.facts(gpu).uuid + "/" +
                              std::to_string(parent) + "/" + std::to_string(compute.id.load());
      if (uuid == old || state.InstanceUuid(gpu, instance) == uuid) return {{gpu, instance}};
    }
  }
  return {};
}

}  // namespace

std::vector<VisibleDevice> FindDevices(const sim::State& state, const char* visible_devices) {
  const std::vector<uint32_t> gpus = OpenableGpus(state);
  std::string_view first = visible_devices == nullptr ? "" : visible_devices;
  first = first.substr(0, first.find(','));
  if (first.starts_with("MIG-")) return MatchInstance(state, gpus, first);
  std::vector<VisibleDevice> devices;
  for (const uint32_t gpu : ApplyVisibleDevices(state, gpus, visible_devices)) {
    if (!state.IsMigEnabled(gpu)) {
      devices.push_back({gpu, sim::kMaxInstances});
      continue;
    }
    const uint32_t instance = state.InstanceByRank(gpu, 0);
    if (instance != sim::kMaxInstances) return {{gpu, instance}};
  }
  return devices;
}

std::vector<uint32_t> OpenableGpus(const sim::State& state) {
  std::vector<uint32_t> gpus;
  for (uint32_t i = 0; i < state.gpu_count(); ++i) {
    const std::string name = "nvidia" + std::to_string(state.facts(i).minor);
    if (sim::State::MayOpen(name.c_str(), O_RDWR)) gpus.push_back(i);
  }
  return gpus;
}

std::vector<uint32_t> ApplyVisibleDevices(const sim::State& state, std::vector<uint32_t> gpus,
                                          const char* value) {
  if (value == nullptr) return gpus;
  std::vector<uint32_t> chosen;
  std::string_view rest = value;
  while (true) {
    const size_t comma = rest.find(',');
    std::string_view entry = rest.substr(0, comma);
    while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
    while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
    const int index = Match(state, gpus, entry);
    if (index < 0) return chosen;
    const uint32_t gpu = gpus[size_t(index)];
    if (std::find(chosen.begin(), chosen.end(), gpu) != chosen.end()) return {};
    chosen.push_back(gpu);
    if (comma == std::string_view::npos) return chosen;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace tessera::cuda
