// SPDX-License-Identifier: Apache-2.0
// Decides a request of the runtime: opens the tokens, finds the GPUs that the container was
// assigned, rejects oversubscription and unhealthy GPUs, and records the grant before it answers.
// The transport is in grant_server.h, the record in grant_ledger.h.
//
//   granted before      The service repeats the grant.
//   assigned            The container gets the GPUs of the pod's annotations, whatever IDs the
//                       kubelet gave: the scheduler sees the whole cluster, the kubelet IDs alone.
//   not assigned        The pod bypasses the scheduler. The service chooses GPUs (local_choice.h),
//                       and writes them on the pod, so that the scheduler sees them.
//   no token            The container gets only GPUs that another device plugin gave it
//                       (other_plugin_grants.h).
//   unknown pod         The request waits for kPodWait, because the kubelet may receive the pod
//                       before the agent.
// Without access to the API server all pods are unknown, and the tokens alone are the request.
//
// An entry of another pod is no conflict once that pod is gone (ended_pods.h).
//
// Threads: lives on `runner`, which may wait for the disk (journal), so health and registration
// have another runner. Nothing here waits for NVML or the API server.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agent/grants/container_limits.h"
#include "src/agent/grants/dialect_env.h"
#include "src/agent/grants/ended_pods.h"
#include "src/agent/grants/grant_description.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/limit_changes.h"
#include "src/agent/grants/node_occupancy.h"
#include "src/agent/grants/offers.h"
#include "src/agent/grants/other_plugin_grants.h"
#include "src/agent/kubelet/admission_order.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"
#include "src/base/uid.h"
#include "src/base/weak_ptr.h"
#include "src/device/limit_variables.h"
#include "src/grant/message.h"
#include "src/grant/token.h"

namespace tessera::agent {

struct GrantOptions {
  DescriptionOptions description;
  std::string node_name;
  std::string limits_dir;         // for the limits of containers; "": no container is limited
  NamespaceSet limits_fail_open;  // as of ContainerLimits
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;  // of one aliyun.com/gpu-mem
  ReleaseOptions release;                                      // its metrics are those below
  // Called when the containers change that two checks in a row found running without their GPUs
  // (unredeemed.h). Null: no checks. `here_since`: older pods may belong to another plugin.
  std::function<void(const std::vector<std::string>&)> on_unredeemed;
  WallTime here_since{};
  // Both may be null.
  OtherPluginGrants* other_plugin_grants = nullptr;
  AdmissionOrder* admission_order = nullptr;
  GrantMetrics* metrics = nullptr;
};

class GrantService final : public Pods::Listener {
 public:
  // How long a request waits for its pod and for leaving pods; the runtime waits longer.
  static constexpr Duration kPodWait = std::chrono::seconds(5);
  // Pause between checks whether leaving pods have left the GPUs that a request needs.
  static constexpr Duration kLeavingPause = std::chrono::milliseconds(100);
  static constexpr Duration kUsagePause = std::chrono::milliseconds(50);
  static constexpr Duration kTokenInterval = std::chrono::minutes(1);
  using Reply = std::function<void(Result<grant::Grant>)>;
  // Called when the offers of resources may change.
  using OnUsageChanged = std::function<void(std::shared_ptr<const NodeUse>)>;

  // All outlive it. `pods` may be null.
  GrantService(TaskRunner* runner, GrantOptions options, const DeviceSetHolder* devices,
               const grant::TokenSigner* signer, GrantLedger* ledger, PodResources* kubelet,
               Pods* pods, OnUsageChanged on_usage_changed);
  ~GrantService() override;
  GrantService(const GrantService&) = delete;
  GrantService& operator=(const GrantService&) = delete;

  // A request of a container with the IDs that the kubelet gave it, as far as they are known.
  struct Question {
    ContainerRef requester;
    std::vector<Claim> claims;
    device::Variables variables;       // of the container, which lower its limits
    bool guessed = false;              // the requester may be wrong
    MonotonicTime until{};             // end of the wait for leaving pods
    std::shared_ptr<Duration> waited;  // null, or grows by waits for the kubelet and for pods
    Reply reply;
  };

  // Calls `reply` once, now or later, and not after the service is destroyed.
  void Handle(const grant::GrantRequest& request, Reply reply);
  // Decides the request of a caller without tokens.
  void Decide(Question question);
  // Makes `holder` the holder of the grant of `unknown`. Errors of the ledger.
  Status SetHolder(const ContainerRef& unknown, const ContainerRef& holder);

  NodeOccupancy& occupancy() { return occupancy_; }
  EndedPods& ended() { return ended_; }
  // The inventory has changed.
  void OnDevices();
  // Sets the value of the node's label.
  void SetIsolationDisabled(bool disabled) { dialects_.isolation_disabled = disabled; }

  void OnPod(const Uid& uid) override;
  void OnPodsSynced() override;

 private:
  struct PlannedGrant {
    GrantLedger::Entry entry;
    std::optional<device::Assignment> chosen;
  };

  Result<std::vector<Claim>> OpenTokens(const grant::GrantRequest& request) const;
  // REQUIRES: the pod is known, or there is no access to pods.
  void Answer(Question question);
  // Releases the conflicts of pods that are gone, then answers.
  void AnswerAfterRelease(Question question, std::vector<GrantLedger::Conflict> conflicts);
  Result<PlannedGrant> PlanFor(const Question& question,
                               const std::shared_ptr<const DeviceSet>& set);
  PlannedGrant PlanOf(const Question& question, const device::DeviceRequest& request,
                      const device::ContainerRequest& container,
                      const std::vector<device::DeviceShare>& shares, const DeviceSet& set) const;
  Result<PlannedGrant> PlanLocally(const Question& question, const device::DeviceRequest& request,
                                   const std::shared_ptr<const DeviceSet>& set);
  Result<grant::Grant> Bind(const Question& question, const PlannedGrant& planned,
                            const DeviceSet& set);
  void Wait(Question question);
  void EnterOtherPluginGrants(const std::shared_ptr<const PodInfo>& pod);
  void PublishAssignment(const Uid& uid);
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
  const grant::TokenSigner* const signer_;
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
  std::vector<std::string> seen_unredeemed_;  // at the last check
  std::vector<std::string> unredeemed_;       // as reported
  WeakPtrFactory<GrantService> weak_{this};
};

}  // namespace tessera::agent
