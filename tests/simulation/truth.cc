// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/truth.h"

#include <fmt/format.h>

#include "api/names.h"
#include "src/device/assignment.h"

namespace tessera::simulation {

void Truth::Starts(const kube::PodObject& pod, const std::string& container,
                   const grant::Grant& grant) {
  const Uid& uid = pod.meta.uid;
  std::string uuids;
  for (const grant::GrantedDevice& device : grant.devices) uuids += " " + device.uuid;
  world_.Note(fmt::format("runs {}/{} on{}", uid, container, uuids));
  running_[{uid, container}] = grant.devices;
  ++started_;
  for (const grant::GrantedDevice& device : grant.devices) CheckGpu(device.uuid);
  CheckAssigned(pod, container, grant);
  if (!world_.failure().empty()) {
    for (const auto& [key, value] : pod.meta.annotations) world_.Note(key + " = " + value);
  }
  const auto [had, first] = first_devices_[uid].try_emplace(container, grant.devices);
  if (!first && had->second != grant.devices) {
    world_.Fail(fmt::format("{}/{} started again with other GPUs:{}", uid, container, uuids));
  }
}

void Truth::Ends(const Uid& uid, const std::string& container) {
  if (running_.erase({uid, container}) > 0) world_.Note(fmt::format("ends {}/{}", uid, container));
}

void Truth::CheckGpu(const std::string& uuid) {
  int64_t milli = 0, bytes = 0;
  int whole = 0, holders = 0;
  for (const auto& [key, devices] : running_) {
    for (const grant::GrantedDevice& device : devices) {
      if (device.uuid != uuid) continue;
      ++holders;
      milli += device.milli;
      whole += device.milli == 1000;
      // A whole GPU has no limit and includes all of its memory.
      bytes += device.milli == 1000 ? kGpuBytes : device.bytes;
    }
  }
  if (milli > 1000 || bytes > kGpuBytes || (whole > 0 && holders > 1)) {
    world_.Fail(fmt::format("{} is oversubscribed: {} holders, {} thousandths, {} bytes", uuid,
                            holders, milli, bytes));
  }
}

void Truth::CheckAssigned(const kube::PodObject& pod, const std::string& container,
                          const grant::Grant& grant) {
  const auto text = pod.meta.annotations.find(names::kAnnotationAssignment);
  if (text == pod.meta.annotations.end()) return;  // bypassed the scheduler
  const Result<device::Assignment> assignment = device::DecodeAssignment(text->second);
  if (!assignment.ok())
    return world_.Fail("the assignment of " + pod.meta.uid.str() + " cannot be decoded");
  const auto shares = assignment->containers.find(container);
  if (shares == assignment->containers.end()) return;
  bool same = shares->second.size() == grant.devices.size();
  for (size_t i = 0; same && i < grant.devices.size(); ++i) {
    const device::DeviceShare& share = shares->second[i];
    const grant::GrantedDevice& device = grant.devices[i];
    same = device.uuid == share.uuid && device.milli == share.compute.count() &&
           device.bytes == (share.compute == kWholeGpu ? 0 : share.memory.count());
  }
  if (!same) {
    world_.Fail(fmt::format("{}/{} runs on other GPUs than it was assigned: {}", pod.meta.uid,
                            container, text->second));
  }
}

}  // namespace tessera::simulation
