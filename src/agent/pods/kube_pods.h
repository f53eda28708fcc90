// SPDX-License-Identifier: Apache-2.0
// The pods of this node through our API client: one watch, and patches of their annotations with
// growing waits while the server refuses them or is away. Idle cost: a watch, renewed every five to
// ten minutes. Threads: made, used and destroyed on `runner`'s.
#pragma once

#include <memory>
#include <string>

#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"
#include "src/net/io_thread.h"

namespace tessera::agent {

// The UID by which kubelet and engine know the pod. A static pod has one of its own, which the API
// server's copy of it (the mirror pod) names in an annotation.
std::string NodeUidOf(const kube::ObjectMeta& pod);

// What the agent needs of a pod. `unit` is what the pod means by 1 of aliyun.com/gpu-mem.
std::shared_ptr<const PodInfo> PodInfoOf(const kube::PodObject& pod, device::MemoryUnit unit);

class KubePods final : public Pods {
 public:
  // Errors of kube::FindConfig. `gpu_mem_unit` is what pods mean by 1 of aliyun.com/gpu-mem.
  static Result<std::unique_ptr<KubePods>> Make(net::IoThread* io, TaskRunner* runner,
                                                const std::string& kubeconfig,
                                                const std::string& node_name,
                                                device::MemoryUnit gpu_mem_unit);
  ~KubePods() override;

  void Start(Listener* listener) override;
  const Map& pods() const override;
  bool synced() const override;
  Status trouble() const override;
  void Annotate(const PodInfo& pod, const device::Annotations& annotations) override;
  void Record(const PodInfo& pod, const PodEvent& event) override;

 private:
  struct Impl;
  explicit KubePods(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::agent
