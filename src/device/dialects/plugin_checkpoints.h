// SPDX-License-Identifier: Apache-2.0
// Reads which GPUs the device plugins of gpushare and gpu-manager gave to containers, from the
// files left on a node:
//
//   kubelet_internal_checkpoint, which the kubelet keeps beside its socket:
//     {"Data":{"PodDeviceEntries":[{"PodUID":…,"ContainerName":…,"ResourceName":…,"DeviceIDs":…,
//     "AllocResp":…}]}}, in older kubelets without "Data". AllocResp, the plugin's answer,
//     names the GPUs. DeviceIDs, one list or one for each NUMA node, does not.
//   gpumanager_internal_checkpoint of gpu-manager:
//     {"PodGPUMapping":{"<pod UID>":{"<container>":{"Devices":["/dev/nvidia0"],"Cores":…,…}}}}
//
// Reads only the GPUs; the amounts come from the pod's request. Ignores answers of Tessera's agent,
// which annotate the container with tessera.dev/allocated.
//
// Threads: any. Errors: INVALID_ARGUMENT names the first invalid entry and counts the others,
// RESOURCE_EXHAUSTED for a text that is too long; valid entries are read nevertheless.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"

namespace tessera::device {

inline constexpr size_t kMaxCheckpointBytes = 32u << 20;

// Distinct minor numbers by pod and container; containers without GPUs are left out.
using AllocatedMinors = std::map<std::pair<Uid, std::string>, std::vector<int>>;

// Both functions add only containers that are not yet in `allocated`.
Status AddKubeletCheckpoint(std::string_view text, AllocatedMinors* allocated);
Status AddGpuManagerCheckpoint(std::string_view text, AllocatedMinors* allocated);

}  // namespace tessera::device
