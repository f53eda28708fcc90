// SPDX-License-Identifier: Apache-2.0
// Which GPUs the device plugins of gpushare and gpu-manager gave to containers, from the files that
// are left of it on a node:
//
//   kubelet_internal_checkpoint     of the kubelet, beside its socket:
//   {"Data":{"PodDeviceEntries":[
//                                   {"PodUID":…,"ContainerName":…,"ResourceName":…,"DeviceIDs":…,
//                                   "AllocResp":…}]}}, of older kubelets without "Data". AllocResp
//                                   is the plugin's answer and names the GPUs; DeviceIDs, one list
//                                   or one for each NUMA node, are numbers that stand for none.
//   gpumanager_internal_checkpoint  of gpu-manager: {"PodGPUMapping":{"<pod UID>":{"<container>":
//                                   {"Devices":["/dev/nvidia0"],"Cores":…,"Memory":…}}}}
//
// Only which GPUs is taken, not how much of them: that the pod's request says. Answers of our own
// agent, which annotate the container with tessera.dev/assignment, are passed over.
//
// Threads: pure functions. Errors: INVALID_ARGUMENT names the first entry that makes no sense and
// counts the others, RESOURCE_EXHAUSTED a text that is too long; the entries that do make sense are
// taken all the same.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"

namespace tessera::device {

inline constexpr size_t kMaxCheckpointBytes = 32u << 20;

// Minor numbers, none twice, by pod UID and container. Who has none is not in it.
using GivenMinors = std::map<std::pair<std::string, std::string>, std::vector<int>>;

// Both add containers that `given` does not know yet.
Status AddKubeletCheckpoint(std::string_view text, GivenMinors* given);
Status AddGpuManagerCheckpoint(std::string_view text, GivenMinors* given);

}  // namespace tessera::device
