// SPDX-License-Identifier: Apache-2.0
// One node with its agent and a fake kubelet, which admits pods, chooses device ids and starts
// containers. The fake has the relevant behavior of the real kubelet: random ids, one pod at a
// time, reuse of an init container's ids, a failed allocation fails the pod permanently, and
// containers stop some time after their pod was deleted.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/base/uid.h"
#include "tests/simulation/agent.h"
#include "tests/simulation/api_server.h"
#include "tests/simulation/truth.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

class Node final : private ApiServer::Listener,
                   private agent::PodResources,
                   private agent::PodProcesses {
 public:
  Node(World& world, ApiServer& server, Truth& truth, const std::string& name, int gpus);

  Agent& agent() { return *agent_; }
  const std::string& name() const { return name_; }
  static constexpr Duration kMaxUnhealthy = std::chrono::seconds(20);
  // Makes one GPU unhealthy for at most kMaxUnhealthy.
  void BreakGpu();
  // Leave deletes the Node object; Join is the kubelet that creates it again.
  void Leave();
  void Join();
  // Containers that wait for a grant, each with its last rejection.
  std::vector<std::string> stuck() const;

 private:
  struct Container {
    const kube::Container* spec = nullptr;
    std::map<std::string, std::vector<std::string>> ids;  // by resource
    std::vector<grant::Token> tokens;
    bool requesting = false;
    bool ran = false;
    std::string rejection;
  };
  struct Pod {
    kube::PodObject object;
    std::vector<Container> containers;
    bool stopping = false;
    bool forgotten = false;  // deleted by force: its ids are free while its containers still end
    Life life = Born();
  };

  void OnPod(const kube::PodObject& pod) override;
  void OnPodGone(const kube::PodObject& last) override;
  void OnSynced() override {}
  void List(agent::PodResources::Done done) override;
  void Read(agent::PodProcesses::Done done) override;

  std::shared_ptr<const device::NodeInventory> Published() const {
    return agent::Withhold(inventory_, withheld_);
  }
  void SetDevices();
  void Publish();
  void Admit(const kube::PodObject& object);
  Status Allocate(Pod& pod, Container& container, const std::string& resource, int64_t amount);
  const std::vector<std::string>& HealthyIds(const std::string& resource);
  std::unordered_set<std::string> InUse(const std::string& resource) const;
  void StartNext(Pod& pod);
  void RequestGrant(Pod& pod, size_t index);
  void Run(Pod& pod, size_t index, const grant::Grant& grant);
  void Stop(const Uid& uid);
  void SetPhase(const Uid& uid, kube::PodPhase phase);
  void Delete(const Uid& uid);
  Pod* Find(const Uid& uid);

  World& world_;
  ApiServer& server_;
  Truth& truth_;
  const std::string name_;
  std::shared_ptr<device::NodeInventory> inventory_;
  agent::WithheldGpus withheld_;
  agent::DeviceSetHolder devices_;
  std::map<std::string, std::vector<std::string>> healthy_;  // ids by resource, computed on demand
  std::shared_ptr<const agent::NodeUse> use_ = std::make_shared<const agent::NodeUse>();
  std::map<Uid, std::unique_ptr<Pod>> pods_;  // admitted
  std::set<Uid> seen_;                        // pods that were admitted, rejected or stopped
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<ApiServer::Feed> feed_;
  const Life life_ = Born();
};

}  // namespace tessera::simulation
