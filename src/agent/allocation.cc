// SPDX-License-Identifier: Apache-2.0
#include "src/agent/allocation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/names.h"
#include "src/base/file.h"

namespace tessera::agent {
namespace {

// Given where they exist, as NVIDIA's plugin does.
constexpr std::array<std::string_view, 4> kControlNodes = {
    "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};
// A foreign runtime that reads this gives no GPU at all.
constexpr std::string_view kNoDevices = "void";

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += ',';
    text += part;
  }
  return text;
}

std::vector<std::string> WithoutRepeats(const std::vector<std::string>& ids) {
  std::vector<std::string> unique;
  for (const std::string& id : ids) {
    if (std::find(unique.begin(), unique.end(), id) == unique.end()) unique.push_back(id);
  }
  return unique;
}

}  // namespace

std::string DevicePath(const std::string& root, int minor) {
  return JoinPath(root, "dev/nvidia" + std::to_string(minor));
}

Allocator::Allocator(AllocationOptions options, const grant::TokenSealer* sealer,
                     const Clock* clock)
    : options_(std::move(options)), sealer_(sealer), clock_(clock) {
  TESSERA_CHECK(options_.binding == Binding::kAllocate || sealer_ != nullptr);
}

Result<Allocation> Allocator::Allocate(const DeviceSet& set,
                                       const std::vector<std::string>& ids) const {
  for (const std::string& id : ids) {
    if (set.Find(id) != nullptr) continue;
    return Error(Code::kUnknown,
                 "invalid allocation request for \"{}\": invalid request: unknown device: {}",
                 options_.resource, id);
  }
  const std::vector<std::string> unique = WithoutRepeats(ids);
  Allocation allocation;
  if (options_.binding == Binding::kLate) {
    allocation.env.push_back({grant::TokenVariable(options_.resource),
                              sealer_->Seal(options_.resource, unique, clock_->WallNow())});
    allocation.env.push_back({std::string(names::kEnvVisibleDevices), std::string(kNoDevices)});
    return allocation;
  }
  allocation.env.push_back({std::string(names::kEnvVisibleDevices), Join(unique)});
  if (options_.pass_device_specs) allocation.devices = NodesOf(set, unique);
  return allocation;
}

std::vector<DeviceNode> Allocator::NodesOf(const DeviceSet& set,
                                           const std::vector<std::string>& ids) const {
  std::vector<DeviceNode> nodes;
  for (const std::string_view node : kControlNodes) {
    const std::string relative(node.substr(1));
    if (!PathExists(JoinPath(options_.dev_root_ctr_path, relative))) continue;
    nodes.push_back({std::string(node), JoinPath(options_.dev_root, relative)});
  }
  for (const std::string& id : ids) {
    const device::Gpu* gpu = set.Find(id);
    // One that has lost its minor is unhealthy and gets no node; the kubelet does not offer it.
    if (gpu == nullptr || !gpu->minor) continue;
    nodes.push_back({DevicePath("/", *gpu->minor), DevicePath(options_.dev_root, *gpu->minor)});
  }
  return nodes;
}

Result<std::vector<std::string>> Allocator::Prefer(const DeviceSet& set,
                                                   const std::vector<std::string>& available,
                                                   const std::vector<std::string>& must_include,
                                                   int size) const {
  for (const auto* list : {&available, &must_include}) {
    for (const std::string& id : *list) {
      if (set.Find(id) != nullptr) continue;
      return Error(Code::kUnknown,
                   "error getting list of preferred allocation devices: unable to retrieve list of "
                   "{} devices: no device with uuid: {}",
                   list == &available ? "available" : "required", id);
    }
  }
  return set.chooser().ChooseDevices(available, must_include, size);
}

}  // namespace tessera::agent
