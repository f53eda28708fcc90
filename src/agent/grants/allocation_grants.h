// SPDX-License-Identifier: Apache-2.0
// With --binding=allocate, for engines without tessera-runtime, Allocate itself returns the GPUs.
// The kubelet does not name the container, so the agent finds it, and compares it with the
// kubelet's list when the container starts (start_checks.h).
//
//   listed          The kubelet lists a pod from its admission on, and admits one pod at a time.
//                   The agent takes the container of a listed pod that requests as many units and
//                   has no grant for them yet.
//   guessed         If the kubelet does not answer, the agent takes, of the containers with this
//                   request, the container that came to the node first.
//   owner unknown   If no container matches within kAllocateWait, the IDs alone choose the GPUs,
//                   and start_checks.h finds the owner later. The kubelet admits no other pod
//                   during this wait. Without access to the API server, the IDs choose at once.
//
// The same code chooses the GPUs as with late binding (grant_service.h). The ledger records them
// before Allocate is answered. Threads: lives on `runner`, the grants' runner.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/grant_service.h"
#include "src/agent/grants/start_waits.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"

namespace tessera::agent {

class AllocationGrants {
 public:
  static constexpr Duration kRetryPause = std::chrono::milliseconds(10);
  // Pause before the kubelet's pods are listed again, because the kubelet rejects more than 100
  // lists a second.
  static constexpr Duration kListPause = std::chrono::milliseconds(50);

  // The arguments must outlive the object. `pods` may be null.
  AllocationGrants(TaskRunner* runner, GrantService* service, const GrantLedger* ledger,
                   const Pods* pods, device::MemoryUnit gpu_mem_unit, GrantMetrics* metrics);
  AllocationGrants(const AllocationGrants&) = delete;
  AllocationGrants& operator=(const AllocationGrants&) = delete;

  // Calls `reply` once, now or later, and not after the object is destroyed. REQUIRES: distinct
  // IDs. If the container requests two resources, only one of the two grants has the devices.
  void Allocate(const std::string& resource, const std::vector<std::string>& ids,
                GrantService::Reply reply);

 private:
  struct Call;
  using CallPtr = std::shared_ptr<Call>;
  struct PossibleOwner {
    ContainerRef ref;
    bool guessed = false;
  };

  void Reply(const CallPtr& call, const Result<grant::Grant>& grant) const;
  void ListPods(const CallPtr& call);
  void FindOwnerAndGrant(const CallPtr& call);
  // Calls `step` again after the pause; returns false if kAllocateWait is over.
  bool RetryAfter(const CallPtr& call, Duration pause,
                  void (AllocationGrants::*step)(const CallPtr&));
  // `reallocated`: considers only containers whose units are in the ledger and that the kubelet no
  // longer lists with them.
  std::optional<PossibleOwner> NextOwner(const Call& call, bool reallocated);
  bool Matches(const Call& call, const PodInfo& pod, const device::ContainerRequest& container,
               bool reallocated) const;
  // The error of a pod that the kubelet lists and whose request is invalid, else OK.
  Status InvalidRequestOf(const Call& call) const;
  void GrantTo(const CallPtr& call, const PossibleOwner& to);
  void ReplyOrRetry(const CallPtr& call, const ContainerRef& ref,
                    const Result<grant::Grant>& grant);
  void GrantByIds(const CallPtr& call);

  TaskRunner* const runner_;
  GrantService* const service_;
  const GrantLedger* const ledger_;
  const Pods* const pods_;
  const device::MemoryUnit gpu_mem_unit_;
  GrantMetrics* const metrics_;
  // The first claim of an unknown container with two resources.
  std::optional<Claim> unpaired_claim_;
  WeakPtrFactory<AllocationGrants> weak_{this};
};

// Makes the claim under which the ledger keeps the IDs of one Allocate call.
Claim NewClaim(const std::string& resource, const std::vector<std::string>& ids, WallTime now);
// Whether the claim is for these IDs, in any order.
bool IsClaimFor(const Claim& claim, const std::string& resource,
                const std::vector<std::string>& ids);

}  // namespace tessera::agent
