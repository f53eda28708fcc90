// SPDX-License-Identifier: Apache-2.0
// The pods of this node, from the API server: one watch, and patches of annotations, which are
// retried with growing pauses. Idle cost: a watch, renewed every five to ten minutes. Threads:
// made, used and destroyed on `runner`'s thread.
#pragma once

#include <memory>
#include <string>

#include "src/agent/pods/pods.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/uid.h"
#include "src/device/dialects.h"
#include "src/kube/objects.h"
#include "src/net/io_thread.h"

namespace tessera::agent {

// The UID by which kubelet and engine know the pod. For a static pod it differs from the UID of the
// API server's copy (the mirror pod), which has it in an annotation.
Uid NodeUidOf(const kube::ObjectMeta& pod);

// The part of a pod that the agent needs. `unit`: the unit of aliyun.com/gpu-mem in its request.
std::shared_ptr<const PodInfo> PodInfoOf(const kube::PodObject& pod, device::MemoryUnit unit);

// Errors: see kube::FindConfig. `gpu_mem_unit`: the unit in which pods request aliyun.com/gpu-mem.
Result<std::unique_ptr<Pods>> ConnectPods(net::IoThread* io, TaskRunner* runner,
                                          const std::string& kubeconfig,
                                          const std::string& node_name,
                                          device::MemoryUnit gpu_mem_unit);

}  // namespace tessera::agent
