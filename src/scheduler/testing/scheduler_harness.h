// SPDX-License-Identifier: Apache-2.0
// For tests: ledger, binder and extender on a fake clock with a fake API server, and the steps by
// which kube-scheduler and the feed advance a pod. Threads: the test's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/ledger/testing/assigned_gpus.h"
#include "src/scheduler/extender.h"
#include "src/scheduler/testing/fake_binding_api.h"

namespace tessera::scheduler::testing {

class SchedulerHarness {
 public:
  explicit SchedulerHarness(ledger::LedgerOptions options = {}) : options_(std::move(options)) {
    Restart();
  }

  // Simulates a restart: memory is lost, and the cluster is listed again.
  void Restart();

  void AddNode(kube::NodeObject node);
  // Adds a waiting pod to the API server and the feed.
  void AddPod(const kube::PodObject& pod);
  void RemovePod(const kube::PodObject& pod);
  // The feed receives the API server's pod.
  void Feed(const kube::PodObject& pod);
  void FeedAll();

  ExtenderArgs Args(const kube::PodObject& pod, std::vector<std::string_view> names = {}) const;
  // Calls AddPod first if the feed does not have the pod.
  FilterResult Filter(const kube::PodObject& pod);
  // Filters and prioritizes like kube-scheduler. Returns the node with 10 points, "" if no node
  // fits.
  std::string Choose(const kube::PodObject& pod);
  // Binds through the binder only, and runs due tasks. nullopt while there is no response.
  std::optional<Status> Bind(const kube::PodObject& pod, const std::string& node);
  // Binds through the extender.
  std::optional<Status> BindAsKubeScheduler(const kube::PodObject& pod, const std::string& node);
  bool BindSucceeds(const kube::PodObject& pod, const std::string& node) {
    const std::optional<Status> status = Bind(pod, node);
    return status && status->ok();
  }
  void Advance(Duration by);

  // GPUs of bound pods by the annotations in the API server.
  ledger::testing::AssignedGpus AssignedGpus() const {
    return ledger::testing::AssignedGpus(api.pods());
  }

  FakeClock clock;
  FakeBindingApi api;
  SchedulerMetrics metrics;
  bool may_write = true;
  std::vector<std::string> events;  // "reason: message"
  std::unique_ptr<ledger::ClusterLedger> ledger;
  std::unique_ptr<Binder> binder;
  std::unique_ptr<Extender> extender;

 private:
  ledger::LedgerOptions options_;
  std::vector<kube::NodeObject> nodes_;
  std::map<std::string, kube::PodObject> fed_;  // the feed's pods
};

}  // namespace tessera::scheduler::testing
