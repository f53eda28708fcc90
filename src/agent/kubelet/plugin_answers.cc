// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/plugin_answers.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

// With this value NVIDIA's container runtime gives the container no GPU.
constexpr std::string_view kNoDevices = "void";
// Precedes the number of further IDs; no ID begins with this character.
constexpr char kCountPrefix = '+';
// Containers get these nodes if they exist, as from NVIDIA's device plugin.
constexpr std::array<std::string_view, 4> kControlNodes = {
    "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};

bool Contains(const std::vector<std::string>& all, const std::vector<std::string>& subset) {
  return std::all_of(subset.begin(), subset.end(), [&](const std::string& id) {
    return std::find(all.begin(), all.end(), id) != all.end();
  });
}

// The answers of all resources have the same NVIDIA_VISIBLE_DEVICES: the kubelet merges the answers
// for one container in the random order of a Go map, and keeps the first value of a variable
// (deviceRunContainerOptions in pkg/kubelet/cm/devicemanager/pod_devices.go).
ContainerAllocation TokenAnswer(const std::string& resource, std::string token) {
  ContainerAllocation allocation;
  allocation.env.emplace(grant::TokenVariable(resource), std::move(token));
  allocation.env.emplace(names::kEnvVisibleDevices, kNoDevices);
  return allocation;
}

// Blocks for stat(2) on device nodes.
ContainerAllocation AllocationOf(const grant::Grant& grant, const DeviceSpecOptions& options) {
  ContainerAllocation allocation;
  allocation.env = grant.env;
  // The kubelet stores the answer in its checkpoint. The annotation tells readers of the checkpoint
  // that the answer is from tessera-agent.
  allocation.annotations.emplace(names::kAnnotationAllocated, "true");
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

}  // namespace

std::string DevicePath(const std::string& root, int minor) {
  return JoinPath(root, "dev/nvidia" + std::to_string(minor));
}

PluginResponder::PluginResponder(std::string resource, Ids ids, const grant::TokenSigner* signer,
                                 const Clock* clock, AdmissionOrder* admission_order,
                                 KubeletGrants* grants, DeviceSpecOptions device_specs)
    : resource_(std::move(resource)),
      ids_(ids),
      signer_(signer),
      clock_(clock),
      admission_order_(admission_order),
      grants_(grants),
      device_specs_(std::move(device_specs)) {}

void PluginResponder::Answer(const DeviceSet& set, const std::vector<std::string>& ids,
                             OnAllocated done) const {
  if (grants_ == nullptr) return done(Allocate(set, ids));
  const Status status = CheckIds(set, ids);
  if (!status.ok()) return done(status);
  grants_->Allocate(
      resource_, WithoutRepeats(ids),
      [options = device_specs_, done = std::move(done)](const Result<grant::Grant>& grant) {
        done(grant.ok() ? AllocationOf(*grant, options)
                        : Result<ContainerAllocation>(grant.status()));
      });
}

void PluginResponder::Check(const std::vector<std::string>& ids, OnChecked done) const {
  if (grants_ == nullptr) return done(Status::Ok());
  grants_->Check(resource_, WithoutRepeats(ids), std::move(done));
}

Status PluginResponder::CheckIds(const DeviceSet& set, const std::vector<std::string>& ids) const {
  const ShareUnits* units = ids_ == Ids::kShareUnits ? set.shares().Find(resource_) : nullptr;
  for (const std::string& id : ids) {
    const bool is_offered =
        ids_ == Ids::kGpus ? set.Find(id) != nullptr : units != nullptr && units->Has(id);
    if (is_offered) continue;
    return Error(Code::kUnknown,
                 "invalid allocation request for \"{}\": invalid request: unknown device: {}",
                 resource_, id);
  }
  return Status::Ok();
}

Result<ContainerAllocation> PluginResponder::Allocate(const DeviceSet& set,
                                                      const std::vector<std::string>& ids) const {
  RETURN_IF_ERROR(CheckIds(set, ids));
  const std::vector<std::string> token_ids =
      ids_ == Ids::kGpus ? WithoutRepeats(ids) : ShareTokenIds(ids);
  if (admission_order_ != nullptr)
    admission_order_->AllocateNext(resource_, static_cast<int64_t>(token_ids.size()));
  return TokenAnswer(resource_, signer_->Sign(resource_, token_ids, clock_->WallNow()));
}

Result<std::vector<std::string>> PluginResponder::Prefer(
    const DeviceSet& set, const std::vector<std::string>& available,
    const std::vector<std::string>& must_include, int size) const {
  if (!has_preference()) {
    return Error(Code::kUnimplemented, "no preferred allocation: units of {} are interchangeable",
                 resource_);
  }
  for (const auto* list : {&available, &must_include}) {
    for (const std::string& id : *list) {
      if (set.Find(id) != nullptr) continue;
      return Error(Code::kUnknown,
                   "error getting list of preferred allocation devices: unable to retrieve list of "
                   "{} devices: no device with uuid: {}",
                   list == &available ? "available" : "required", id);
    }
  }
  if (admission_order_ != nullptr) {
    const auto next = admission_order_->Next(resource_, size);
    std::vector<std::string> assigned =
        next ? device::UuidsOf(next->shares) : std::vector<std::string>();
    if (!assigned.empty() && Contains(available, assigned) && Contains(assigned, must_include)) {
      return assigned;
    }
  }
  return set.chooser().ChooseDevices(available, must_include, size);
}

std::vector<std::string> WithoutRepeats(const std::vector<std::string>& ids) {
  std::vector<std::string> unique;
  std::unordered_set<std::string_view> seen;  // a share may have thousands of IDs
  for (const std::string& id : ids) {
    if (seen.insert(id).second) unique.push_back(id);
  }
  return unique;
}

std::vector<std::string> ShareTokenIds(const std::vector<std::string>& ids) {
  if (ids.empty()) return {};
  return {*std::min_element(ids.begin(), ids.end()), kCountPrefix + std::to_string(ids.size() - 1)};
}

int64_t UnitsOfToken(const std::vector<std::string>& ids) {
  if (ids.size() != 2 || ids[1].empty() || ids[1][0] != kCountPrefix)
    return static_cast<int64_t>(ids.size());
  return 1 + ParseInt(std::string_view(ids[1]).substr(1)).value_or(0);
}

}  // namespace tessera::agent
