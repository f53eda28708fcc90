// SPDX-License-Identifier: Apache-2.0
// The agent of one node as a process that crashes: the product's own grant service and ledger over
// a disk that outlives it, and what its plugins answer to the kubelet.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/allocation.h"
#include "src/agent/grant_ledger.h"
#include "src/agent/grant_service.h"
#include "src/agent/kubelet.h"
#include "src/agent/offers.h"
#include "src/agent/pods.h"
#include "src/grant/journal.h"
#include "src/grant/token.h"
#include "tests/simulation/api_server.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

// The records of a journal. A crash may come before or after each write.
class Disk final : public grant::RecordLog {
 public:
  explicit Disk(World& world) : world_(world) {}

  Status Append(std::string_view record) override;
  Status AppendSoon(std::string_view record) override;
  Status Replace(const std::vector<std::string>& records) override;
  const std::vector<std::string>& records() const { return records_; }

  // Whether the process died in the last write. `percent` of writes kill it.
  bool killed() const { return killed_; }
  void SetDanger(uint64_t percent) { danger_ = percent; }
  // The next process. Half of the time the machine had lost power, too.
  void Revive();

 private:
  Status Write(std::function<void()> write);

  World& world_;
  std::vector<std::string> records_;
  size_t unflushed_ = 0;  // of them, at the end
  uint64_t danger_ = 0;
  bool killed_ = false;
};

class Agent final : private agent::Pods, private ApiServer::Listener {
 public:
  using OnOffers = std::function<void(std::shared_ptr<const agent::NodeUse>)>;

  // `kubelet` and `devices` outlive it.
  Agent(World& world, ApiServer& server, std::string node, agent::PodResources& kubelet,
        const agent::DeviceSetHolder& devices, OnOffers on_offers);

  bool running() const { return service_.has_value(); }
  void Crash();
  void OnDevices() {
    if (service_) service_->OnDevices();
  }
  Disk& disk() { return disk_; }
  // Live entries of the ledger, also while it does not run.
  size_t entries() const;

  // What the kubelet and the runtime ask. UNAVAILABLE while it does not run; an answer that is
  // under way when it crashes never comes.
  Result<std::vector<grant::Token>> Allocate(const std::string& resource,
                                             const std::vector<std::string>& ids);
  void Grant(const grant::Request& request, agent::GrantService::Reply reply);

 private:
  void StartProcess();
  void DieIfKilled();

  // agent::Pods
  void Start(agent::Pods::Listener* listener) override;
  const Map& pods() const override { return pods_; }
  bool synced() const override { return feed_ && feed_->synced(); }
  Status trouble() const override { return {}; }
  void Annotate(const agent::PodInfo& pod, const device::Annotations& annotations) override;
  void Write(const std::string& uid);
  // ApiServer::Listener
  void OnPod(const kube::PodObject& pod) override;
  void OnPodGone(const kube::PodObject& last) override;
  void OnSynced() override;

  World& world_;
  ApiServer& server_;
  const std::string node_;
  agent::PodResources& kubelet_;
  const agent::DeviceSetHolder& devices_;
  const OnOffers on_offers_;
  Disk disk_;

  // Of one process.
  Life process_;
  grant::TokenSealer sealer_;
  std::optional<agent::GrantLedger> ledger_;
  std::optional<agent::GrantService> service_;
  std::optional<ApiServer::Feed> feed_;
  agent::Pods::Listener* listener_ = nullptr;
  Map pods_;
  std::map<std::string, device::Annotations> wanted_;  // to be written, by UID
};

}  // namespace tessera::simulation
