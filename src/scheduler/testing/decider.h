// SPDX-License-Identifier: Apache-2.0
// For tests: ledger, binder and extender on a turned clock with a fake API server, and the parts of
// kube-scheduler and of a feed that move pods between them.
// Threads: the test's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/ledger/testing/given_out.h"
#include "src/scheduler/extender.h"
#include "src/scheduler/testing/fake_binding_api.h"

namespace tessera::scheduler::testing {

class Decider {
 public:
  explicit Decider(ledger::LedgerOptions options = {}) : options_(std::move(options)) { Restart(); }

  // As another process would begin: what was in memory is gone, the cluster is read anew.
  void Restart();

  void AddNode(kube::NodeObject node);
  // Waiting, known to the API server and to the feed.
  void AddPod(const kube::PodObject& pod);
  void RemovePod(const kube::PodObject& pod);
  // The feed sees what the API server has.
  void Feed(const kube::PodObject& pod);
  void FeedAll();

  ExtenderArgs Args(const kube::PodObject& pod, std::vector<std::string_view> names = {}) const;
  // A pod that is not known is added first.
  FilterResult Filter(const kube::PodObject& pod);
  // Filter and prioritize as kube-scheduler asks; the node of 10 points, "" where none fits.
  std::string Choose(const kube::PodObject& pod);
  // By the binder alone, whoever asked for it. Runs what is due. Nothing while there is no answer.
  std::optional<Status> Bind(const kube::PodObject& pod, const std::string& node);
  // The same through the extender.
  std::optional<Status> BindAsKubeScheduler(const kube::PodObject& pod, const std::string& node);
  bool Binds(const kube::PodObject& pod, const std::string& node) {
    const std::optional<Status> status = Bind(pod, node);
    return status && status->ok();
  }
  void Advance(Duration by);

  // What bound pods have, as the API server's annotations say it.
  ledger::testing::GivenOut GivenOut() const { return ledger::testing::GivenOut(api.pods()); }

  FakeClock clock;
  FakeBindingApi api;
  SchedulerMetrics metrics;
  bool may_write = true;
  std::vector<std::string> told;  // "reason: message"
  std::unique_ptr<ledger::ClusterLedger> ledger;
  std::unique_ptr<Binder> binder;
  std::unique_ptr<Extender> extender;

 private:
  ledger::LedgerOptions options_;
  std::vector<kube::NodeObject> nodes_;
  std::map<std::string, kube::PodObject> fed_;  // as the feed has them
};

}  // namespace tessera::scheduler::testing
