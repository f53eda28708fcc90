// SPDX-License-Identifier: Apache-2.0
// Builds Node and Pod objects like the API server's, for tests and tests/bench.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/base/strings.h"
#include "src/device/dialects.h"
#include "src/kube/objects.h"
#include "src/ledger/ledger.h"

namespace tessera::ledger::testing {

// The UUID of the GPU at that position of a GpuNode: "GPU-n-0".
std::string UuidOf(std::string_view node, int position);

// A ready node with GPUs of model "NVIDIA A100-SXM4-80GB", equal links between all of them, and 1
// TiB of memory.
kube::NodeObject GpuNode(const std::string& name, int gpus, std::string_view gpu_memory = "80Gi",
                         std::string_view cpu = "128");

// A waiting pod "ns/<name>" of UID "uid-<name>" with one container "main".
kube::PodObject GpuPod(const std::string& name,
                       const std::map<std::string_view, std::string>& limits);

// A waiting pod that requests whole GPUs.
kube::PodObject Whole(const std::string& name, int gpus = 1);

// The pod after it was bound with these annotations.
kube::PodObject BoundPod(kube::PodObject pod, const std::string& node,
                         const StringMap& annotations);

// Binds a waiting pod to the node, as a scheduler cycle does: the ledger chooses GPUs and then
// receives the bound pod. Returns that pod. REQUIRES: the pod fits.
kube::PodObject Bind(ClusterLedger& ledger, const kube::PodObject& pod, const std::string& node);

}  // namespace tessera::ledger::testing
