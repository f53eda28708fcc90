// SPDX-License-Identifier: Apache-2.0
// Chooses GPUs for a pod that bypasses the scheduler. A share goes to the GPU with the least room
// left (best fit). Whole GPUs are those that the kubelet named if they are free, else the GPUs with
// the best links. Containers that share GPUs (Request::Groups) get the GPUs that one of them
// already has, whatever the kubelet named. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/agent/grants/gpu_accounts.h"
#include "src/agent/kubelet/device_set.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/device/assignment.h"
#include "src/device/request.h"

namespace tessera::agent {

struct LocalQuestion {
  Uid pod_uid;
  const device::DeviceRequest* request = nullptr;
  std::string container;           // the starting container
  bool phases_known = true;        // false: the tokens alone are known
  std::vector<std::string> named;  // by the kubelet, for whole GPUs
  // GPUs that other pods hold by tokens that name them. The kubelet may know that such a pod is
  // gone and name its GPU again, so the GPU is not replaced by another.
  std::set<std::string, std::less<>> contested;
  device::Assignment assigned;  // to containers of the pod so far
};

// Returns `assigned` with the GPUs of this container and of every other container of the pod that
// shares GPUs, because those must find room later. Other containers with whole GPUs choose when
// they start, because the kubelet names theirs then; there must be room for them now.
// RESOURCE_EXHAUSTED says what does not fit.
Result<device::Assignment> ChooseLocally(const LocalQuestion& question, const DeviceSet& set,
                                         GpuAccounts accounts);

// The hold of one container on the GPU of one share.
Hold HoldOf(const Uid& pod_uid, const device::ContainerRequest& container,
            const device::DeviceShare& share);

}  // namespace tessera::agent
