// SPDX-License-Identifier: Apache-2.0
// --binding=allocate, for engines that ask nobody afterwards: Allocate itself names the GPUs. The
// kubelet does not say for which container, so that is found out here, and held against what the
// kubelet says when the container starts (start_checks.h).
//
//   listed    The kubelet admits one pod at a time, and lists it from then on. So it is the listed
//             pod that asks for so many of the resource and that nobody has given any.
//   guessed   Where the kubelet does not answer, the one that came first.
//   unnamed   A pod that we do not know yet is waited for, for kPatience, while the kubelet's
//             admission waits. Then GPUs are chosen by the ids alone, and start_checks.h finds out
//             whose they are; so it is without access to the API server.
//
// Which GPUs a container gets is decided where late binding decides it (grant_service.h), and is in
// the ledger before it is answered. Threads: lives on `runner`, that of the grants.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/grant_metrics.h"
#include "src/agent/grants/grant_service.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

// Of whom nobody has told whose the GPUs are; no container has this name.
inline constexpr std::string_view kUnknownContainer = "?";

class AllocationGrants {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(2);
  static constexpr Duration kPause = std::chrono::milliseconds(10);
  // Between attempts at what the kubelet may answer otherwise: it turns away more than 100 lists a
  // second, and pods end.
  static constexpr Duration kLongPause = std::chrono::milliseconds(50);

  // All outlive it. `pods` and `metrics` may be null.
  AllocationGrants(TaskRunner* runner, GrantService* service, const GrantLedger* ledger,
                   const Pods* pods, device::MemoryUnit gpu_mem_unit,
                   GrantMetrics* metrics = nullptr);
  AllocationGrants(const AllocationGrants&) = delete;
  AllocationGrants& operator=(const AllocationGrants&) = delete;

  // Replies once, now or later; not at all when it is destroyed before. Ids are not repeated. A
  // grant without devices: they come with the answer for the container's other resource.
  void Allocate(const std::string& resource, const std::vector<std::string>& ids,
                GrantService::Reply reply);

 private:
  struct Call;
  using CallPtr = std::shared_ptr<Call>;
  struct Candidate {
    ContainerRef who;
    bool guessed = false;
  };

  void Reply(const CallPtr& call, const Result<grant::Grant>& grant) const;
  void Look(const CallPtr& call);
  void Find(const CallPtr& call);
  // Tries again after the pause, unless patience is over.
  bool Again(const CallPtr& call, Duration pause, void (AllocationGrants::*step)(const CallPtr&));
  // `again`: of those that have been given some, which the kubelet has forgotten.
  std::optional<Candidate> Next(const Call& call, bool again);
  bool MayBe(const Call& call, const PodInfo& pod, const device::ContainerRequest& container,
             bool again) const;
  // Of a pod that the kubelet lists and that breaks a rule.
  Status BrokenRequest(const Call& call) const;
  void Give(const CallPtr& call, const Candidate& to);
  void Answer(const CallPtr& call, const ContainerRef& who, const Result<grant::Grant>& grant);
  void GiveByIds(const CallPtr& call);

  TaskRunner* const runner_;
  GrantService* const service_;
  const GrantLedger* const ledger_;
  const Pods* const pods_;
  const device::MemoryUnit unit_;
  GrantMetrics* const metrics_;
  std::optional<Claim> half_;  // what came first of an unnamed container with two resources
  const std::shared_ptr<AllocationGrants*> self_ = std::make_shared<AllocationGrants*>(this);
};

// What the ledger keeps of the ids of one answer.
Claim NewClaim(const std::string& resource, const std::vector<std::string>& ids, WallTime now);
// Whether it is of these ids, in any order.
bool IsOf(const Claim& claim, const std::string& resource, const std::vector<std::string>& ids);

}  // namespace tessera::agent
