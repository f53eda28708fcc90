// SPDX-License-Identifier: Apache-2.0
// For tests: a fake cluster, filled from API objects.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "api/names.h"
#include "src/cli/commands.h"
#include "src/device/node_annotation.h"
#include "src/ledger/testing/objects.h"

namespace tessera::cli::testing {

class FakeCluster {
 public:
  FakeCluster() { ledger_ = ledger::ClusterLedger::Make({}, &clock_).value(); }
  // References to added pods stay valid.
  kube::PodObject& Add(kube::PodObject pod) {
    kube::PodObject& added = pods_[pod.meta.ns + "/" + pod.meta.name];
    added = std::move(pod);
    ledger_->SetPod(added);
    return added;
  }
  void Add(const kube::NodeObject& node) { ledger_->SetNode(node); }
  // Like Add, with one GPU changed in the node's annotation.
  void AddChanged(kube::NodeObject node, size_t gpu,
                  const std::function<void(device::Gpu&)>& change) {
    std::string& text = node.meta.annotations[std::string(names::kAnnotationDevices)];
    device::NodeInventory inventory = device::DecodeNodeInventory(text).value();
    change(inventory.gpus[gpu]);
    text = device::EncodeNodeInventory(inventory).value();
    Add(node);
  }
  // Adds `pod`, bound to the node with a share of one GPU for one container.
  kube::PodObject& Place(kube::PodObject pod, const std::string& node, int gpu, int64_t milli,
                         Bytes bytes) {
    device::Assignment assignment;
    assignment.containers["main"] = {{ledger::testing::UuidOf(node, gpu), MilliGpu(milli), bytes}};
    return Add(ledger::testing::BoundPod(
        std::move(pod), node,
        {{std::string(names::kAnnotationAssignment), EncodeAssignment(assignment).value()}}));
  }

  ledger::ClusterLedger& ledger() { return *ledger_; }
  ClusterView view() const { return ClusterView(*ledger_); }

 private:
  FakeClock clock_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
  std::map<std::string, kube::PodObject> pods_;
};

inline kube::PodObject PodIn(const std::string& ns, const std::string& name,
                             const std::map<std::string_view, std::string>& limits) {
  kube::PodObject pod = ledger::testing::GpuPod(name, limits);
  pod.meta.ns = ns;
  pod.meta.uid = Uid("uid-" + ns + "-" + name);
  return pod;
}

// Three nodes: "big" is in use in every way, "old" has an unhealthy GPU, "mini" is empty.
inline void FillSample(FakeCluster& cluster) {
  kube::NodeObject big = ledger::testing::GpuNode("big", 4);
  big.internal_ip = "10.0.0.1";
  cluster.Add(big);
  kube::NodeObject old = ledger::testing::GpuNode("old", 2, "16Gi");
  old.internal_ip = "10.0.0.2";
  old.unschedulable = true;
  cluster.AddChanged(old, 1, [](device::Gpu& gpu) {
    gpu.health = device::Health::Unhealthy("XID 79: GPU has fallen off the bus");
  });
  cluster.Add(ledger::testing::GpuNode("mini", 1, "16Gi"));
  cluster.Add(kube::NodeObject{.meta = {.name = "cpu-only"}, .ready = true});
  cluster.Place(PodIn("ml", "train", {{names::kResourceGpu, "1"}}), "big", 0, 1000, GiB(80));
  cluster.Place(PodIn("default", "nginx",
                      {{names::kResourceVcudaCore, "30"}, {names::kResourceVcudaMemory, "20"}}),
                "big", 1, 300, GiB(5));
  cluster.Place(PodIn("default", "binpack-1", {{names::kResourceGpuMem, "8"}}), "big", 2, 0,
                GiB(8));
  cluster.Place(PodIn("web", "binpack-2", {{names::kResourceGpuMem, "3"}}), "big", 2, 0, GiB(3));
}

}  // namespace tessera::cli::testing
