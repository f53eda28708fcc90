// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/testing/scheduler_harness.h"

#include <algorithm>
#include <utility>

namespace tessera::scheduler::testing {
namespace {

std::string KeyOf(const kube::PodObject& pod) { return pod.meta.ns + "/" + pod.meta.name; }

}  // namespace

void SchedulerHarness::Restart() {
  extender.reset();
  binder.reset();
  ledger = ledger::ClusterLedger::Make(options_, &clock).value();
  binder = std::make_unique<Binder>(*ledger, api, clock, [this] { return may_write; });
  extender = std::make_unique<Extender>(
      *ledger, *binder, clock, metrics,
      [this](const std::string& key) {
        const auto found = fed_.find(key);
        return found == fed_.end() ? nullptr : &found->second;
      },
      [this](const kube::PodObject&, kube::EventKind, std::string_view reason,
             const std::string& message) {
        events.push_back(std::string(reason) + ": " + message);
      },
      HoldOptions{});
  for (const kube::NodeObject& node : nodes_) ledger->SetNode(node);
  FeedAll();
}

void SchedulerHarness::AddNode(kube::NodeObject node) {
  ledger->SetNode(node);
  nodes_.push_back(std::move(node));
}

void SchedulerHarness::AddPod(const kube::PodObject& pod) {
  api.Put(pod);
  Feed(pod);
}

void SchedulerHarness::RemovePod(const kube::PodObject& pod) {
  api.Remove(KeyOf(pod));
  Feed(pod);
}

void SchedulerHarness::Feed(const kube::PodObject& pod) {
  const kube::PodObject* now = api.Find(KeyOf(pod));
  const auto before = fed_.find(KeyOf(pod));
  if (before != fed_.end() && (now == nullptr || now->meta.uid != before->second.meta.uid)) {
    ledger->RemovePod(before->second.meta.uid);
    binder->OnPodGone(before->second.meta.uid);
    extender->OnPodGone(before->second.meta.uid);
    fed_.erase(before);
  }
  if (now == nullptr) return;
  fed_[KeyOf(pod)] = *now;
  ledger->SetPod(*now);
  binder->OnPod(*now);
  extender->OnPod(*now);
}

void SchedulerHarness::FeedAll() {
  const auto known = fed_;
  for (const auto& [key, pod] : known) Feed(pod);
}

ExtenderArgs SchedulerHarness::Args(const kube::PodObject& pod,
                                    std::vector<std::string_view> names) const {
  ExtenderArgs args;
  args.pod = pod;
  args.node_names = std::move(names);
  if (args.node_names.empty()) {
    for (const kube::NodeObject& node : nodes_) args.node_names.push_back(node.meta.name);
  }
  return args;
}

FilterResult SchedulerHarness::Filter(const kube::PodObject& pod) {
  if (!fed_.contains(KeyOf(pod))) AddPod(pod);
  return extender->Filter(Args(pod));
}

std::string SchedulerHarness::Choose(const kube::PodObject& pod) {
  const ExtenderArgs all = Args(pod);
  const FilterResult filtered = Filter(pod);
  if (filtered.fitting.empty()) return "";
  if (filtered.fitting.size() == 1) return std::string(all.node_names[filtered.fitting[0]]);
  std::vector<std::string_view> fitting;
  for (const size_t i : filtered.fitting) fitting.push_back(all.node_names[i]);
  const ExtenderArgs args = Args(pod, fitting);
  const std::vector<int> points = extender->Prioritize(args);
  const auto best = std::find(points.begin(), points.end(), kMaxHostScore);
  return std::string(args.node_names[static_cast<size_t>(best - points.begin())]);
}

std::optional<Status> SchedulerHarness::Bind(const kube::PodObject& pod, const std::string& node) {
  // The response may arrive after this function has returned.
  const auto answer = std::make_shared<std::optional<Status>>();
  const auto found = fed_.find(KeyOf(pod));
  const bool known = found != fed_.end() && found->second.meta.uid == pod.meta.uid;
  binder->Bind(known ? kube::PodObject(found->second) : pod, node,
               [answer](const Status& status) { *answer = status; });
  api.Run();
  return *answer;
}

std::optional<Status> SchedulerHarness::BindAsKubeScheduler(const kube::PodObject& pod,
                                                            const std::string& node) {
  const auto answer = std::make_shared<std::optional<Status>>();
  extender->Bind({pod.meta.name, pod.meta.ns, pod.meta.uid, node},
                 [answer](const Status& status) { *answer = status; });
  api.Run();
  return *answer;
}

void SchedulerHarness::Advance(Duration by) {
  clock.Advance(by);
  extender->Tick();
  binder->Tick();
  api.Run();
}

}  // namespace tessera::scheduler::testing
