// SPDX-License-Identifier: Apache-2.0
// The agent of one node as a process that crashes: the product's grant service, grant ledger and
// pod memory on a disk that survives, and its plugins' responses to the kubelet.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/grant_service.h"
#include "src/agent/grants/offers.h"
#include "src/agent/grants/take_over.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/agent/pods/remembered_pods.h"
#include "src/grant/journal.h"
#include "src/grant/token.h"
#include "tests/simulation/api_server.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

// The agent's two journals. A crash may come before or after each write.
class Disk {
 public:
  explicit Disk(World& world) : world_(world) {}

  enum File : size_t { kGrants, kPods, kFiles };
  // Opens a file for a process. The disk outlives the process.
  std::unique_ptr<grant::RecordLog> Open(File file);
  const std::vector<std::string>& records(File file) const { return files_[file].records; }

  // Whether the process died in its last write.
  bool killed() const { return killed_; }
  // Sets the percentage of writes in which the process dies.
  void SetKillPercent(uint64_t percent) { kill_percent_ = percent; }
  // Prepares the disk for the next process. Half of the time the machine has lost power, too.
  void Revive();

 private:
  struct Content {
    std::vector<std::string> records;
    size_t unflushed = 0;  // number of unflushed records at the end
  };
  class Log;
  Status Write(const std::function<void()>& write);

  World& world_;
  std::array<Content, kFiles> files_;
  uint64_t kill_percent_ = 0;
  bool killed_ = false;
};

class Agent final {
 public:
  using OnWithheld = std::function<void(const agent::WithheldGpus&)>;
  using OnOffers = std::function<void(std::shared_ptr<const agent::NodeUse>)>;

  // `kubelet`, `processes` and `devices` outlive the agent. The service calls `on_withheld`; each
  // start of a process calls it with an empty value.
  Agent(World& world, ApiServer& server, std::string node, agent::PodResources& kubelet,
        agent::PodProcesses& processes, const agent::DeviceSetHolder& devices, OnOffers on_offers,
        OnWithheld on_withheld);

  bool running() const { return service_.has_value(); }
  void Crash();
  void OnInventoryChanged() {
    if (service_) service_->OnInventoryChanged();
  }
  Disk& disk() { return disk_; }
  // Number of live entries of the grant ledger, also while the agent does not run.
  size_t entries() const;
  // Number of grants before the agent received any pod from the API server.
  size_t granted_from_memory() const { return granted_from_memory_; }

  // Requests of the kubelet and the runtime. They fail with UNAVAILABLE while the agent does not
  // run; a response that is pending at a crash never arrives.
  Result<std::vector<grant::Token>> Allocate(const std::string& resource,
                                             const std::vector<std::string>& ids);
  void Grant(const grant::GrantRequest& request, agent::GrantService::Reply reply);

 private:
  void StartProcess();
  void DieIfKilled();

  World& world_;
  ApiServer& server_;
  const std::string node_;
  agent::PodResources& kubelet_;
  agent::PodProcesses& processes_;
  const agent::DeviceSetHolder& devices_;
  const OnOffers on_offers_;
  const OnWithheld on_withheld_;
  Disk disk_;
  const grant::TokenSigner signer_;
  size_t granted_from_memory_ = 0;
  agent::GrantMetrics metrics_;

  // State of one process.
  Life process_;
  std::unique_ptr<grant::RecordLog> grants_;
  std::optional<agent::GrantLedger> ledger_;
  std::optional<agent::RememberedPods> pods_;
  std::optional<agent::PluginTakeover> take_over_;
  std::optional<agent::GrantService> service_;
};

}  // namespace tessera::simulation
