// SPDX-License-Identifier: Apache-2.0
// --binding=allocate for tests, from the kubelet's Allocate to its PreStartContainer.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/grants/allocation_grants.h"
#include "src/agent/grants/start_checks.h"
#include "src/agent/grants/testing/grants_fixture.h"

namespace tessera::agent {

using Ids = std::vector<std::string>;

class AllocationFixture : public GrantsFixture {
 protected:
  AllocationFixture() {
    RestartAll();
    pods_.Sync();
  }

  void RestartAll(bool with_api_server = true) {
    checks_.reset();
    allocation_.reset();
    Restart(with_api_server);
    Pods* pods = with_api_server ? &pods_ : nullptr;
    allocation_.emplace(&runner_, &*service_, &*ledger_, pods, device::MemoryUnit::kGiB, &metrics_);
    checks_.emplace(&runner_, &*service_, &*ledger_, pods, &devices_, &metrics_);
  }

  void SetHealthOfGpu1(const device::Health& health) {
    auto inventory = std::make_shared<device::NodeInventory>(FourGpus()->inventory());
    inventory->gpus[1].health = health;
    devices_.Set(std::make_shared<DeviceSet>(inventory));
  }

  void AssignMem(const std::string& name, int gib, const std::string& uuid) {
    Assign(FakeApiPods::Make(name, {{"main", {{kMem, std::to_string(gib)}}}}), {{"main", {uuid}}});
  }

  Ids NewIds(int count) {
    Ids ids;
    for (int i = 0; i < count; ++i) ids.push_back("m" + std::to_string(1000 + next_id_++));
    return ids;
  }
  void Hold(const std::string& pod, const std::string& resource, const Ids& ids) {
    for (const std::string& id : ids) kubelet_.Hold(pod, resource, id);
  }

  std::shared_ptr<std::optional<Result<grant::Grant>>> Start(const std::string& resource,
                                                             const Ids& ids) {
    auto answer = std::make_shared<std::optional<Result<grant::Grant>>>();
    allocation_->Allocate(resource, ids,
                          [answer](Result<grant::Grant> reply) { *answer = std::move(reply); });
    runner_.RunUntilIdle();
    return answer;
  }
  static std::string Visible(const Result<grant::Grant>& grant) {
    if (!grant.ok()) return grant.status().ToString();
    const auto env = grant->env.find("NVIDIA_VISIBLE_DEVICES");
    return env == grant->env.end() ? "" : env->second;
  }
  // The answer to Allocate, after all waits.
  std::string Allocate(const std::string& resource, const Ids& ids) {
    const auto answer = Start(resource, ids);
    if (!answer->has_value()) runner_.AdvanceTimeAndRun(kAllocateWait);
    return answer->has_value() ? Visible(**answer) : "waits";
  }
  // Admits a pod with one container as the kubelet does, and returns its GPU.
  std::string AdmitMem(const std::string& pod, const Ids& ids) {
    kubelet_.Admit(pod);
    const std::string gpu = Allocate(kMem, ids);
    Hold(pod, kMem, ids);
    return gpu;
  }
  Status PreStart(const std::string& resource, Ids ids) {
    std::reverse(ids.begin(), ids.end());  // another order each time
    std::optional<Status> answer;
    checks_->Check(resource, ids, [&](Status status) { answer = std::move(status); });
    runner_.RunUntilIdle();
    if (!answer) runner_.AdvanceTimeAndRun(kStartCheckWait + std::chrono::seconds(1));
    return answer.value_or(Status(Code::kAborted, "waits"));
  }

  std::optional<AllocationGrants> allocation_;
  std::optional<StartChecks> checks_;
};

}  // namespace tessera::agent
