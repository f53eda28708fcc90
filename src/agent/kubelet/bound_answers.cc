// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/bound_answers.h"

#include <array>
#include <utility>

#include "api/names.h"
#include "src/base/file.h"

namespace tessera::agent {
namespace {

// Containers get these nodes if they exist, as from NVIDIA's device plugin.
constexpr std::array<std::string_view, 4> kControlNodes = {
    "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};

}  // namespace

ContainerAllocation AllocationOf(const grant::Grant& grant, const DeviceSpecOptions& options) {
  ContainerAllocation allocation;
  for (const auto& [name, value] : grant.env) allocation.env.push_back({name, value});
  // The kubelet stores the answer in its checkpoint. The annotation tells readers of the checkpoint
  // that the answer is from tessera-agent.
  allocation.annotations.push_back({std::string(names::kAnnotationAllocated), "true"});
  if (!options.pass_device_specs || grant.devices.empty()) return allocation;
  for (const std::string_view node : kControlNodes) {
    const std::string relative(node.substr(1));
    if (!PathExists(JoinPath(options.dev_root_ctr_path, relative))) continue;
    allocation.devices.push_back({std::string(node), JoinPath(options.dev_root, relative)});
  }
  for (const grant::GrantedDevice& device : grant.devices) {
    allocation.devices.push_back({device.path, device.host_path});
  }
  return allocation;
}

AllocateBindingResponder::AllocateBindingResponder(
    std::string resource, std::unique_ptr<const PluginResponder> late_binding,
    DeviceSpecOptions options, KubeletGrants* grants)
    : resource_(std::move(resource)),
      late_binding_(std::move(late_binding)),
      options_(std::move(options)),
      grants_(grants) {}

void AllocateBindingResponder::Answer(const DeviceSet& set, const std::vector<std::string>& ids,
                                      OnAllocated done) const {
  const Status status = CheckIds(set, ids);
  if (!status.ok()) return done(status);
  grants_->Allocate(
      resource_, WithoutRepeats(ids),
      [options = options_, done = std::move(done)](const Result<grant::Grant>& grant) {
        done(grant.ok() ? AllocationOf(*grant, options)
                        : Result<ContainerAllocation>(grant.status()));
      });
}

void AllocateBindingResponder::Check(const std::vector<std::string>& ids, OnChecked done) const {
  grants_->Check(resource_, WithoutRepeats(ids), std::move(done));
}

}  // namespace tessera::agent
