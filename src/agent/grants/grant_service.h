// SPDX-License-Identifier: Apache-2.0
// Decides a request of the runtime: opens the tokens, finds the GPUs that the container was
// assigned, rejects oversubscription and unhealthy GPUs, and records the grant before it answers.
// The transport is in grant_server.h, the record in grant_ledger.h.
//
//   granted before      The service repeats the grant.
//   assigned            The container gets the GPUs of the pod's annotations, whatever IDs the
//                       kubelet gave: the scheduler sees the whole cluster, the kubelet only device IDs of this node.
//   not assigned        The pod bypasses the scheduler. The service chooses GPUs (local_choice.h),
//                       and writes them on the pod, so that the scheduler sees them.
//   no token            The container gets only GPUs that another device plugin gave it
//                       (other_plugin_grants.h).
//   unknown pod         The request waits for kPodWait, because the kubelet may receive the pod
//                       before the agent.
// Without access to the API server all pods are unknown, and only the tokens define the request.
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
  std::string limits_dir;  // directory of the containers' limits; "": no container is limited
  NamespaceSet limits_fail_open;                               // see ContainerLimits
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;  // size of 1 aliyun.com/gpu-mem
  ReleaseOptions release;                                      // the service sets its `metrics`
  // Called when the containers change that two checks in a row found running without their GPUs
  // (unredeemed.h). Null: no checks. A pod that is older than `agent_installed_at` may belong to
  // another plugin.
  std::function<void(const std::vector<std::string>&)> on_unredeemed;
  WallTime agent_installed_at{};
  // Both may be null.
  OtherPluginGrants* other_plugin_grants = nullptr;
  AdmissionOrder* admission_order = nullptr;
  GrantMetrics* metrics = nullptr;
};

class GrantService final : public Pods::Listener {
 public:
  // How long a request waits for its pod, and for ended pods to release GPUs; the runtime waits
  // longer.
  static constexpr Duration kPodWait = std::chrono::seconds(5);
  // Interval of checks whether ended pods have released the GPUs that a request needs.
  static constexpr Duration kReleasePollInterval = std::chrono::milliseconds(100);
  static constexpr Duration kUsagePublishDelay = std::chrono::milliseconds(50);
  static constexpr Duration kUnredeemedCheckInterval = std::chrono::minutes(1);
  using Reply = std::function<void(Result<grant::Grant>)>;
  // Called when the number of offered devices may have changed.
  using OnUsageChanged = std::function<void(std::shared_ptr<const NodeUse>)>;

  // The arguments must outlive the object. `pods` may be null.
  GrantService(TaskRunner* runner, GrantOptions options, const DeviceSetHolder* devices,
               const grant::TokenSigner* signer, GrantLedger* ledger, PodResources* kubelet,
               Pods* pods, OnUsageChanged on_usage_changed);
  ~GrantService() override;
  GrantService(const GrantService&) = delete;
  GrantService& operator=(const GrantService&) = delete;

  // A request that waits for its answer, with the device IDs that the kubelet gave the container,
  // if they are known.
  struct PendingRequest {
    ContainerRef requester;
    std::vector<Claim> claims;
    device::Variables variables;  // environment variables of the container that lower its limits
    bool requester_is_guess = false;
    MonotonicTime release_deadline{};  // end of the wait for pods that are ending
    std::shared_ptr<Duration> waited;  // null, or the sum of waits for the kubelet and for pods
    Reply reply;
  };

  // Calls `reply` once, now or later, and not after the service is destroyed.
  void Handle(const grant::GrantRequest& request, Reply reply);
  // Decides the request of a caller without tokens.
  void Decide(PendingRequest pending);
  // Makes `holder` the holder of the grant of `unknown`. Errors: see GrantLedger::SetHolder.
  Status SetHolder(const ContainerRef& unknown, const ContainerRef& holder);

  NodeOccupancy& occupancy() { return occupancy_; }
  EndedPods& ended() { return ended_; }
  // Call when the inventory has changed.
  void OnInventoryChanged();
  // Sets whether the node's label cgpu.disable.isolation switches limits off.
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
  void Answer(PendingRequest pending);
  // Releases the entries of deleted pods among the conflicts, then answers.
  void AnswerAfterRelease(PendingRequest pending, std::vector<GrantLedger::Conflict> conflicts);
  Result<PlannedGrant> PlanFor(const PendingRequest& pending,
                               const std::shared_ptr<const DeviceSet>& set);
  PlannedGrant PlanAssigned(const PendingRequest& pending, const device::DeviceRequest& request,
                            const device::ContainerRequest& container,
                            const std::vector<device::DeviceShare>& shares,
                            const DeviceSet& set) const;
  Result<PlannedGrant> PlanLocally(const PendingRequest& pending,
                                   const device::DeviceRequest& request,
                                   const std::shared_ptr<const DeviceSet>& set);
  Result<grant::Grant> Bind(const PendingRequest& pending, const PlannedGrant& planned,
                            const DeviceSet& set);
  void Wait(PendingRequest pending);
  void EnterOtherPluginGrants(const std::shared_ptr<const PodInfo>& pod);
  void PublishAssignment(const Uid& uid);
  void UpdateAdmissionOrder();
  void ScheduleTokenCheck();
  void OnUnredeemed(std::vector<std::string> containers);
  void ScheduleUsage();
  void RefreshUsage();
  void PublishUsage();
  // The directory with the limits of the container, or "".
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
  std::vector<std::shared_ptr<PendingRequest>> waiting_for_pod_;
  bool usage_planned_ = false;
  std::vector<std::string> last_check_unredeemed_;
  std::vector<std::string> reported_unredeemed_;
  WeakPtrFactory<GrantService> weak_{this};
};

}  // namespace tessera::agent
