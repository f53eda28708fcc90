// SPDX-License-Identifier: Apache-2.0
// The grant service of a node for tests, with a kubelet, pods and a journal that the test sets.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/names.h"
#include "src/agent/grants/grant_service.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/agent/kubelet/testing/four_gpus.h"
#include "src/agent/pods/testing/fake_pods.h"
#include "src/base/strings.h"

namespace tessera::agent {

inline constexpr bool kWithoutApiServer = false;  // argument of Restart

inline const std::string kGpu(names::kResourceGpu);
inline const std::string kMem(names::kResourceGpuMem);
inline const std::string kCore(names::kResourceVcudaCore);
inline const std::string kBlocks(names::kResourceVcudaMemory);

class FakeKubelet : public PodResources {
 public:
  explicit FakeKubelet(TaskRunner* runner) : runner_(runner) {}
  void List(Done done) override {
    runner_->Post([this, done = std::move(done)] {
      done(last_error.ok() ? answer : Result<PodDevices>(last_error));
    });
  }
  void Admit(const std::string& name) { answer->pods.emplace_back("default", name); }
  void Hold(const std::string& name, const std::string& resource, const std::string& id) {
    answer->held_devices.push_back({"default", name, "main", resource, {id}});
  }
  void End(const std::string& name) {
    std::erase(answer->pods, std::pair<std::string, std::string>("default", name));
    std::erase_if(answer->held_devices, [&](const auto& held) { return held.pod_name == name; });
  }
  Result<PodDevices> answer = PodDevices();
  Status last_error;  // replaces the answer

 private:
  TaskRunner* const runner_;
};

class MemoryLog : public grant::RecordLog {
 public:
  Status Append(std::string_view record) override {
    if (status.ok()) records.emplace_back(record);
    return status;
  }
  Status Replace(const std::vector<std::string>& all) override {
    if (status.ok()) records = all;
    return status;
  }
  std::vector<std::string> records;
  Status status;  // of every write
};

class GrantsFixture : public ::testing::Test {
 protected:
  GrantsFixture() {
    devices_.Set(FourGpus());
    Restart();
  }

  // Restarts the service as after a crash: only the log remains.
  void Restart(bool with_api_server = true) {
    service_.reset();
    size_t skipped = 0;
    ledger_.emplace(&log_, log_.records, &skipped);
    EXPECT_EQ(skipped, 0u);
    service_.emplace(&runner_,
                     GrantOptions{.description = {.dev_root_ctr_path = "/nonexistent"},
                                  .node_name = "node-1",
                                  .limits_dir = limits_dir_,
                                  .limits_fail_open = limits_fail_open_,
                                  .release = release_,
                                  .on_unredeemed = on_unredeemed_,
                                  .metrics = &metrics_,
                                  .take_over = MakeTakeover()},
                     &devices_, &signer_, &*ledger_, &kubelet_, with_api_server ? &pods_ : nullptr,
                     [this](std::shared_ptr<const NodeUse> use) { use_ = std::move(use); });
    runner_.RunUntilIdle();
  }

  // Returns the service's PluginTakeover over `ledger_`, which lives until the next call.
  virtual PluginTakeover* MakeTakeover() { return nullptr; }

  grant::Token Token(const std::string& resource, int units) {
    std::vector<std::string> ids;
    if (resource == kGpu) {
      for (int i = 0; i < units; ++i) ids.push_back("GPU-" + std::to_string(i));
    } else {
      ids = {"m000" + std::to_string(next_id_++), "+" + std::to_string(units - 1)};
    }
    return {grant::TokenVariable(resource), signer_.Sign(resource, ids, runner_.clock().WallNow())};
  }

  // Writes the annotations of the scheduler.
  void Assign(PodInfo pod, const std::map<std::string, std::vector<std::string>>& gpus) {
    device::Assignment assignment;
    for (const auto& container : pod.request->containers) {
      const auto found = gpus.find(container.name);
      if (found == gpus.end()) continue;
      for (const std::string& uuid : found->second) {
        assignment.containers[container.name].push_back(
            *device::ShareOn(container, devices_.Get()->inventory(), uuid));
      }
    }
    const auto all = device::AnnotationsFor(*pod.request, assignment, devices_.Get()->inventory(),
                                            {.node = "node-1", .time_ns = 1});
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    pod.annotations = *all;
    pods_.Set(std::move(pod));
  }

  Result<grant::Grant> RequestGrant(const std::string& pod, std::vector<grant::Token> tokens,
                                    const std::string& container = "main") {
    auto answer = Start(pod, std::move(tokens), container);
    runner_.RunUntilIdle();
    return answer->has_value() ? **answer : Result<grant::Grant>(Status(Code::kAborted, "waits"));
  }
  std::shared_ptr<std::optional<Result<grant::Grant>>> Start(
      const std::string& pod, std::vector<grant::Token> tokens,
      const std::string& container = "main") {
    auto answer = std::make_shared<std::optional<Result<grant::Grant>>>();
    service_->Handle({.pod_uid = Uid("uid-" + pod),
                      .pod_namespace = "default",
                      .pod_name = pod,
                      .container = container,
                      .tokens = std::move(tokens),
                      .variables = variables_},
                     [answer](Result<grant::Grant> reply) { *answer = std::move(reply); });
    return answer;
  }
  std::string GpuOf(const std::string& pod, std::vector<grant::Token> tokens,
                    const std::string& container = "main") {
    const auto grant = RequestGrant(pod, std::move(tokens), container);
    return grant.ok() ? grant->env.at("NVIDIA_VISIBLE_DEVICES") : grant.status().ToString();
  }

  FakeTaskRunner runner_;
  ReleaseOptions release_;
  std::string limits_dir_;  // "": nothing is limited
  std::set<std::string> limits_fail_open_;
  StringMap variables_;  // of the requesting container
  std::function<void(const std::vector<std::string>&)> on_unredeemed_;
  DeviceSetHolder devices_;
  grant::TokenSigner signer_{std::string(32, 'k')};
  MemoryLog log_;
  FakeApiPods pods_;
  FakeKubelet kubelet_{&runner_};
  GrantMetrics metrics_;
  std::optional<GrantLedger> ledger_;
  std::optional<GrantService> service_;
  std::shared_ptr<const NodeUse> use_;
  int next_id_ = 0;
};

}  // namespace tessera::agent
