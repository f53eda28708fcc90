// SPDX-License-Identifier: Apache-2.0
// Decides a request of the runtime. It opens the tokens, waits for the pod and for GPUs of ended
// pods (start_waits.h), and plans which GPUs the container gets (grant_planner.h). It rejects
// oversubscription and unhealthy GPUs, and records the grant before it answers. If the agent chose
// the GPUs itself, it then writes them to the pod's annotations, so that the scheduler sees them.
// The transport is in grant_server.h, the record in grant_ledger.h.
//
// Without a token a container gets only GPUs that another device plugin gave it (take_over.h). An
// entry of another pod is no conflict once that pod is gone (ended_pods.h).
//
// Threads: `runner`'s. Writing the journal may block it, so the health checks of GPUs and the
// registration with the kubelet use another runner. Nothing here waits for NVML or the API server.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/agent/grants/container_limits.h"
#include "src/agent/grants/ended_pods.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/grant_planner.h"
#include "src/agent/grants/limit_changes.h"
#include "src/agent/grants/node_occupancy.h"
#include "src/agent/grants/offers.h"
#include "src/agent/grants/take_over.h"
#include "src/agent/grants/unredeemed.h"
#include "src/agent/kubelet/admission_order.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"
#include "src/base/uid.h"
#include "src/base/weak_ptr.h"
#include "src/grant/message.h"
#include "src/grant/token.h"

namespace tessera::agent {

struct GrantOptions {
  DescriptionOptions description;
  std::string node_name;
  std::string limits_dir;  // directory of the containers' limits; "": no container is limited
  NamespaceSet limits_fail_open;                               // see ContainerLimits
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;  // size of 1 aliyun.com/gpu-mem
  ReleaseOptions release;
  // Called with the containers that two checks in a row have found running without their GPUs
  // (unredeemed.h), when the list changes. Null: no checks. Pods that were created
  // before `agent_installed_at` are left out: another device plugin may have given them GPUs.
  std::function<void(const std::vector<std::string>&)> on_unredeemed;
  WallTime agent_installed_at{};
  GrantMetrics* metrics = nullptr;  // must be set, and outlive the service
  // Each of the following pointers may be null.
  PluginTakeover* take_over = nullptr;
  AdmissionOrder* admission_order = nullptr;
};

class GrantService final : public Pods::Delegate {
 public:
  // Interval of checks whether ended pods have released the GPUs that a request needs.
  static constexpr Duration kReleasePollInterval = std::chrono::milliseconds(100);
  static constexpr Duration kUsagePublishDelay = std::chrono::milliseconds(50);
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

  // Calls `reply` once, now or later, and not after the service is destroyed.
  void Handle(const grant::GrantRequest& request, Reply reply);
  // Decides a request whose tokens are already opened, or that has no tokens.
  void Decide(PendingRequest pending);
  // Makes `holder` the holder of the grant of `placeholder`. Errors: see GrantLedger::SetHolder.
  Status SetHolder(const ContainerRef& placeholder, const ContainerRef& holder);

  NodeOccupancy& occupancy() { return occupancy_; }
  // See LimitChanges.
  Pods::Map PodsWithAcceptedLimits() const { return limit_changes_.PodsWithAcceptedLimits(); }
  EndedPods& ended_pods() { return ended_pods_; }
  // Call when the inventory has changed.
  void OnInventoryChanged();
  // Sets whether the node's label cgpu.disable.isolation switches limits off.
  void SetIsolationDisabled(bool disabled) { dialects_.isolation_disabled = disabled; }

  void OnPod(const Uid& uid) override;
  void OnPodsSynced() override;

 private:
  // Plans, binds and replies. REQUIRES: the pod is known, or the agent has no API server.
  void PlanAndBind(PendingRequest pending);
  // Releases the entries of deleted pods among the conflicts, then plans again, binds and replies.
  void PlanAndBindAfterRelease(PendingRequest pending,
                               std::vector<GrantLedger::Conflict> conflicts);
  Result<grant::Grant> Bind(const PendingRequest& pending, const PlannedGrant& plan,
                            const DeviceSet& set);
  void WaitForPod(PendingRequest pending);
  void AddOtherPluginGrants(const std::shared_ptr<const PodInfo>& pod);
  void PublishAssignment(const Uid& uid);
  void UpdateAdmissionOrder();
  void ScheduleUsageRefresh();
  void RefreshUsage();
  void PublishUsage();

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
  GrantPlanner planner_;
  EndedPods ended_pods_;
  UnredeemedWatch unredeemed_;
  std::vector<std::shared_ptr<PendingRequest>> waiting_for_pod_;
  bool usage_refresh_scheduled_ = false;
  WeakPtrFactory<GrantService> weak_{this};
};

}  // namespace tessera::agent
