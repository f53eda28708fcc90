// SPDX-License-Identifier: Apache-2.0
// Decides what the runtime's question gets: checks the seals of the tokens, finds which GPUs the
// container was assigned, holds them to Conservation, refuses an ill GPU, and writes it down before
// it answers. Transport is grant_server.h's, memory grant_ledger.h's.
//
//   granted before      the same again
//   assigned            by the pod's annotations, whatever ids the kubelet gave: the scheduler sees
//                       the whole cluster, the kubelet only numbers
//   not assigned        the pod came past the scheduler: chosen here (local_choice.h), and written
//                       on the pod afterwards, so that whoever reads the cluster knows
//   no token            only what was given to it before there was an agent (earlier_grants.h)
//   not known           the pod is waited for, for kPodPatience: the kubelet may have heard of it
//                       before we have
// Without access to the API server all pods are unknown, and what the tokens say is what they ask
// for.
//
// Room that another pod's entry takes is no conflict if that pod is gone (ended_pods.h).
//
// Threads: lives on `runner`, which may wait for the disk (journal), so not the one of health and
// registration. Nothing here waits for NVML or the API server.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agent/grants/container_limits.h"
#include "src/agent/grants/dialect_env.h"
#include "src/agent/grants/earlier_grants.h"
#include "src/agent/grants/ended_pods.h"
#include "src/agent/grants/grant_description.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/limit_changes.h"
#include "src/agent/grants/node_occupancy.h"
#include "src/agent/grants/offers.h"
#include "src/agent/kubelet/admission_order.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"
#include "src/grant/message.h"
#include "src/grant/token.h"

namespace tessera::agent {

struct GrantOptions {
  DescriptionOptions description;
  std::string node_name;
  std::string limits_dir;  // for the limits of containers; "": no container is limited
  std::set<std::string> limits_fail_open;                      // as of ContainerLimits
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;  // that pods mean
  ReleaseOptions release;                                      // its metrics are those below
  // Containers that run without their GPUs (unredeemed.h), seen at two looks; called when they
  // change. Null: they are not looked for. `here_since`: pods from before may be another plugin's.
  std::function<void(const std::vector<std::string>&)> on_unredeemed;
  WallTime here_since{};
  // May be null, as those below.
  EarlierGrants* earlier = nullptr;  // enters what containers got before there was an agent
  AdmissionOrder* admission_order = nullptr;  // is told who waits for the kubelet
  GrantMetrics* metrics = nullptr;
};

class GrantService final : public Pods::Listener {
 public:
  // The runtime asks for longer than that.
  static constexpr Duration kPodPatience = std::chrono::seconds(5);
  // Between looks whether a pod that is gone has left a GPU that the question needs.
  static constexpr Duration kLeavingPause = std::chrono::milliseconds(100);
  static constexpr Duration kUsagePause = std::chrono::milliseconds(50);
  static constexpr Duration kTokenInterval = std::chrono::minutes(1);
  using Reply = std::function<void(Result<grant::Grant>)>;
  // What the resources may offer has changed.
  using OnUsageChanged = std::function<void(std::shared_ptr<const NodeUse>)>;

  // All outlive it. `pods` may be null.
  GrantService(TaskRunner* runner, GrantOptions options, const DeviceSetHolder* devices,
               const grant::TokenSealer* sealer, GrantLedger* ledger, PodResources* kubelet,
               Pods* pods, OnUsageChanged on_usage_changed);
  ~GrantService() override;
  GrantService(const GrantService&) = delete;
  GrantService& operator=(const GrantService&) = delete;

  // Whose question it is, and what the kubelet gave it, as far as is known.
  struct Question {
    ContainerRef who;
    std::vector<Claim> claims;
    bool guessed = false;   // maybe it is another one's
    MonotonicTime until{};  // how long it may wait for a GPU that a pod is leaving
    std::shared_ptr<Duration>
        waited;  // where not null, grows by waits for the kubelet and for pods
    Reply reply;
  };

  // Replies once, now or later; not at all when the service is destroyed before.
  void Handle(const grant::Request& request, Reply reply);
  // The same, for whoever has no tokens to show.
  void Decide(Question question);
  // Now it is known whose the grant is that was given to `unnamed`. Errors of the ledger.
  Status SetHolder(const ContainerRef& unnamed, const ContainerRef& who);

  NodeOccupancy& occupancy() { return occupancy_; }
  EndedPods& ended() { return ended_; }
  // There are other GPUs.
  void OnDevices();
  // Whether the node is labelled so.
  void SetIsolationDisabled(bool disabled) { dialects_.isolation_disabled = disabled; }

  void OnPod(const std::string& uid) override;
  void OnPodsSynced() override;

 private:
  struct PlannedGrant {
    GrantLedger::Entry entry;
    std::optional<device::Assignment> chosen;
  };

  Result<std::vector<Claim>> OpenTokens(const grant::Request& request) const;
  // The pod is known, or nobody can know it.
  void Answer(Question question);
  // Once more after pods that are gone were released.
  void AnswerAfterLook(Question question, std::vector<GrantLedger::Conflict> conflicts);
  Result<PlannedGrant> PlanFor(const Question& question,
                               const std::shared_ptr<const DeviceSet>& set);
  PlannedGrant PlanOf(const Question& question, const device::Request& request,
                      const device::ContainerRequest& container,
                      const std::vector<device::DeviceShare>& shares, const DeviceSet& set) const;
  Result<PlannedGrant> PlanLocally(const Question& question, const device::Request& request,
                                   const std::shared_ptr<const DeviceSet>& set);
  Result<grant::Grant> Bind(const Question& question, const PlannedGrant& planned,
                            const DeviceSet& set);
  void Wait(Question question);
  void EnterEarlier(const std::shared_ptr<const PodInfo>& pod);
  void PublishAssignment(const std::string& uid);
  void UpdateAdmissionOrder();
  void ScheduleTokenCheck();
  void OnUnredeemed(std::vector<std::string> containers);
  void ScheduleUsage();
  void RefreshUsage();
  void PublishUsage();
  // The folder with the limits of the container, or "".
  Result<std::string> WriteLimits(const GrantLedger::Entry& entry,
                                  std::vector<grant::GrantedDevice> devices);

  TaskRunner* const runner_;
  const GrantOptions options_;
  const DeviceSetHolder* const devices_;
  const grant::TokenSealer* const sealer_;
  GrantLedger* const ledger_;
  Pods* const pods_;
  const OnUsageChanged on_usage_changed_;

  DialectSettings dialects_;
  ContainerLimits limits_;
  LimitChanges limit_changes_;
  NodeOccupancy occupancy_;
  EndedPods ended_;
  std::vector<std::shared_ptr<Question>> waiting_;  // for their pods
  bool usage_planned_ = false;
  std::vector<std::string> seen_unredeemed_;  // at the last look
  std::vector<std::string> unredeemed_;       // as reported
  const std::shared_ptr<GrantService*> self_;
};

}  // namespace tessera::agent
