// SPDX-License-Identifier: Apache-2.0
// Node and Pod objects as the API server has them, for tests and tests/bench.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/device/dialects.h"
#include "src/kube/objects.h"

namespace tessera::ledger::testing {

// "GPU-n-0": of the GPU at that position of a GpuNode.
std::string UuidOf(std::string_view node, int position);

// A Ready node with GPUs of one model, "NVIDIA A100-SXM4-80GB", all linked alike, and 1 TiB.
kube::NodeObject GpuNode(const std::string& name, int gpus, std::string_view gpu_memory = "80Gi",
                         std::string_view cpu = "128");

// A waiting pod "ns/<name>" of UID "uid-<name>" with one container "main".
kube::PodObject GpuPod(const std::string& name,
                       const std::map<std::string_view, std::string>& limits);

// A waiting pod that requests whole GPUs.
kube::PodObject Whole(const std::string& name, int gpus = 1);

// The same pod once it is bound with these annotations.
kube::PodObject BoundPod(kube::PodObject pod, const std::string& node,
                         const device::Annotations& annotations);

}  // namespace tessera::ledger::testing
