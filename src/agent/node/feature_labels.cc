// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/feature_labels.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/model.h"

namespace tessera::agent {
namespace {

// GPUs of one model: their number, and a GPU that represents them.
struct ModelGroup {
  int count = 0;
  int with_mig = 0;  // GPUs in MIG mode
  Bytes memory;
  const device::Gpu* gpu = nullptr;
};

ModelGroup LargestGroup(const device::NodeInventory& inventory) {
  std::map<std::string, ModelGroup> groups;
  for (const device::Gpu& gpu : inventory.gpus) {
    ModelGroup& group = groups[gpu.model];
    ++group.count;
    group.with_mig += gpu.mig.has_value();
    group.memory = std::max(group.memory, gpu.memory);
    // The compute capability of a failing GPU may be unknown.
    if (group.gpu == nullptr || !group.gpu->compute_capability) group.gpu = &gpu;
  }
  ModelGroup largest;
  for (const auto& [model, group] : groups) {
    if (group.count > largest.count) largest = group;
  }
  return largest;
}

// GPU feature discovery's names of architectures.
std::string_view FamilyOf(const device::ComputeCapability& capability) {
  switch (capability.major) {
    case 1:
      return "tesla";
    case 2:
      return "fermi";
    case 3:
      return "kepler";
    case 5:
      return "maxwell";
    case 6:
      return "pascal";
    case 7:
      return capability.minor < 5 ? "volta" : "turing";
    case 8:
      return capability.minor < 9 ? "ampere" : "ada-lovelace";
    case 9:
      return "hopper";
    case 10:
    case 12:
      return "blackwell";
    case 13:
      return "rubin";
    default:
      return "undefined";
  }
}

// As in GPU feature discovery: "compute" if all GPUs are 3D controllers, "graphics" if all are VGA
// controllers (PCI Code and ID Assignment, class 03).
std::string_view ModeOf(const device::NodeInventory& inventory, const NodeHardware& hardware) {
  std::set<std::string> classes;
  for (const device::Gpu& gpu : inventory.gpus) {
    const PciDevice* device = hardware.Find(gpu.pci_bus_id);
    classes.insert(device != nullptr ? device->pci_class : "");
  }
  if (classes == std::set<std::string>{"0x030200"}) return "compute";
  if (classes == std::set<std::string>{"0x030000"}) return "graphics";
  return "unknown";
}

// Nullopt if GPUs belong to different cliques.
std::optional<std::string> CliqueOf(const device::NodeInventory& inventory) {
  std::set<device::FabricClique> cliques;
  for (const device::Gpu& gpu : inventory.gpus) {
    if (gpu.fabric) cliques.insert(*gpu.fabric);
  }
  if (cliques.size() != 1) return std::nullopt;
  return fmt::format("{}.{}", cliques.begin()->cluster_uuid, cliques.begin()->clique);
}

// All feature labels. A label that FeatureLabels does not set has no value.
constexpr std::string_view kFeatureLabels[] = {
    names::kLabelGpuPresent,
    names::kLabelGpuCount,
    names::kLabelGpuProduct,
    names::kLabelGpuMemory,
    "nvidia.com/cuda.driver.major",
    "nvidia.com/cuda.driver.minor",
    "nvidia.com/cuda.driver.rev",
    "nvidia.com/cuda.driver-version.full",
    "nvidia.com/cuda.driver-version.major",
    "nvidia.com/cuda.driver-version.minor",
    "nvidia.com/cuda.driver-version.revision",
    "nvidia.com/cuda.runtime.major",
    "nvidia.com/cuda.runtime.minor",
    "nvidia.com/cuda.runtime-version.full",
    "nvidia.com/cuda.runtime-version.major",
    "nvidia.com/cuda.runtime-version.minor",
    "nvidia.com/gpu.clique",
    "nvidia.com/gpu.compute.major",
    "nvidia.com/gpu.compute.minor",
    "nvidia.com/gpu.family",
    "nvidia.com/gpu.machine",
    "nvidia.com/gpu.mode",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/mig.capable",
    "nvidia.com/mps.capable",
    "nvidia.com/vgpu.host-driver-branch",
    "nvidia.com/vgpu.host-driver-version",
    "nvidia.com/vgpu.present",
};

class FeatureLabelSet {
 public:
  FeatureLabelSet() {
    for (const std::string_view name : kFeatureLabels) labels_[std::string(name)] = std::nullopt;
  }
  // REQUIRES: `name` is one of kFeatureLabels.
  void Set(std::string_view name, std::string_view value) {
    labels_.find(name)->second = std::string(value);
  }
  void Set(std::string_view name, int64_t value) { Set(name, std::to_string(value)); }
  void Set(std::string_view name, bool value) { Set(name, value ? "true" : "false"); }
  void Set(std::string_view name, const char* value) { Set(name, std::string_view(value)); }
  StringChanges Take() { return std::move(labels_); }

 private:
  StringChanges labels_;
};

// GPU feature discovery writes the versions under two names, the older of which is deprecated.
void SetDriverVersion(const std::string& version, FeatureLabelSet* labels) {
  std::vector<std::string_view> parts = SplitList(version, '.');
  if (parts.size() < 2 || parts.size() > 3) return;
  parts.resize(3);  // the third number may be missing, its label has an empty value then
  labels->Set("nvidia.com/cuda.driver.major", parts[0]);
  labels->Set("nvidia.com/cuda.driver.minor", parts[1]);
  labels->Set("nvidia.com/cuda.driver.rev", parts[2]);
  labels->Set("nvidia.com/cuda.driver-version.major", parts[0]);
  labels->Set("nvidia.com/cuda.driver-version.minor", parts[1]);
  labels->Set("nvidia.com/cuda.driver-version.revision", parts[2]);
  labels->Set("nvidia.com/cuda.driver-version.full", version);
}

// `version`: 12040 is 12.4.
void SetCudaVersion(int version, FeatureLabelSet* labels) {
  if (version <= 0) return;
  const int64_t major = version / 1000;
  const int64_t minor = version % 1000 / 10;
  labels->Set("nvidia.com/cuda.runtime.major", major);
  labels->Set("nvidia.com/cuda.runtime.minor", minor);
  labels->Set("nvidia.com/cuda.runtime-version.major", major);
  labels->Set("nvidia.com/cuda.runtime-version.minor", minor);
  labels->Set("nvidia.com/cuda.runtime-version.full", fmt::format("{}.{}", major, minor));
}

void SetGroup(const ModelGroup& group, FeatureLabelSet* labels) {
  labels->Set(names::kLabelGpuCount, int64_t{group.count});
  labels->Set(names::kLabelGpuProduct, device::ProductLabel(group.gpu->model));
  // The label is left out if the driver does not report memory, as on integrated GPUs.
  if (group.memory > Bytes(0)) labels->Set(names::kLabelGpuMemory, ToMiB(group.memory));
  // 0 means that all GPUs are in MIG mode. Shares are resources of their own, not replicas.
  labels->Set("nvidia.com/gpu.replicas", int64_t{group.with_mig == group.count ? 0 : 1});
  labels->Set("nvidia.com/gpu.sharing-strategy", "none");
  labels->Set("nvidia.com/mps.capable", false);
  if (const auto& capability = group.gpu->compute_capability) {
    labels->Set("nvidia.com/gpu.family", FamilyOf(*capability));
    labels->Set("nvidia.com/gpu.compute.major", int64_t{capability->major});
    labels->Set("nvidia.com/gpu.compute.minor", int64_t{capability->minor});
  }
}

// Sets no vGPU label if a configuration space cannot be read.
void SetVgpu(const std::vector<PciDevice>& devices, FeatureLabelSet* labels) {
  std::optional<VgpuHost> host;
  for (const PciDevice& device : devices) {
    if (!device.vgpu_host.ok()) return;
    if (*device.vgpu_host) host = **device.vgpu_host;
  }
  labels->Set("nvidia.com/vgpu.present", host.has_value());
  if (!host) return;
  labels->Set("nvidia.com/vgpu.host-driver-version", device::LabelValue(host->driver_version));
  labels->Set("nvidia.com/vgpu.host-driver-branch", device::LabelValue(host->driver_branch));
}

}  // namespace

StringChanges FeatureLabels(const device::NodeInventory& inventory, const NodeHardware& hardware) {
  FeatureLabelSet labels;
  if (inventory.gpus.empty()) return labels.Take();
  labels.Set(names::kLabelGpuPresent, true);
  SetDriverVersion(inventory.driver_version, &labels);
  SetCudaVersion(inventory.cuda_version, &labels);
  SetGroup(LargestGroup(inventory), &labels);
  SetVgpu(hardware.nvidia_devices, &labels);
  labels.Set("nvidia.com/mig.capable",
             std::ranges::any_of(inventory.gpus, &device::Gpu::mig_capable));
  const std::string machine = device::LabelValue(hardware.machine);
  labels.Set("nvidia.com/gpu.machine", machine.empty() ? "unknown" : std::string_view(machine));
  labels.Set("nvidia.com/gpu.mode", ModeOf(inventory, hardware));
  if (const auto clique = CliqueOf(inventory)) labels.Set("nvidia.com/gpu.clique", *clique);
  return labels.Take();
}

}  // namespace tessera::agent
