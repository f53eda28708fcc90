// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "tests/simulation/scheduler.h"

namespace tessera::simulation {

using namespace std::chrono_literals;

namespace {

// How long kube-scheduler waits for an extender.
constexpr Duration kHttpTimeout = 5s;

}  // namespace

KubeScheduler::KubeScheduler(World& world, ApiServer& server,
                             std::vector<std::unique_ptr<Replica>>& replicas, int bypass_percent)
    : world_(world), server_(server), replicas_(replicas), bypass_percent_(bypass_percent) {
  world_.Every(40ms, life_, [this] { Cycle(); });
}

Replica* KubeScheduler::Leader() {
  const std::string address = server_.LeaderAddress();
  for (const auto& replica : replicas_) {
    if (replica->address() == address) return replica.get();
  }
  return nullptr;
}

void KubeScheduler::RetryLater(const Uid& uid) {
  const auto found = waiting_.find(uid);
  if (found == waiting_.end()) return;
  Waiting& waiting = found->second;
  waiting.busy = false;
  waiting.pause = std::clamp<Duration>(waiting.pause * 2, 1s, 10s);
  waiting.next_attempt = world_.clock().Now() + waiting.pause;
}

void KubeScheduler::Cycle() {
  const MonotonicTime now = world_.clock().Now();
  const kube::PodObject* chosen = nullptr;
  std::pair<int32_t, MonotonicTime> first;
  ++cycle_;
  for (const auto& [name, pod] : server_.pods()) {
    if (!pod.node_name.empty() || pod.meta.deleting || pod.ended()) continue;
    Waiting& waiting = waiting_[pod.meta.uid];
    waiting.seen = cycle_;
    if (waiting.busy || waiting.next_attempt > now) continue;
    const std::pair order(-pod.priority, waiting.next_attempt);
    if (chosen != nullptr && first <= order) continue;
    chosen = &pod;
    first = order;
  }
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second.seen != cycle_; });
  if (chosen == nullptr) return;
  const kube::PodObject pod = *chosen;
  Waiting& waiting = waiting_[pod.meta.uid];
  if (waiting.pause == Duration::zero() && world_.Chance(static_cast<uint64_t>(bypass_percent_))) {
    return BindWithoutExtender(pod, waiting);
  }
  Schedule(pod, waiting);
}

// Acts like a kube-scheduler without an extender, which does not know which GPUs are free.
void KubeScheduler::BindWithoutExtender(const kube::PodObject& pod, Waiting& waiting) {
  if (server_.nodes().empty()) return RetryLater(pod.meta.uid);
  auto node = server_.nodes().begin();
  std::advance(node, world_.random().Below(server_.nodes().size()));
  waiting.busy = true;
  server_.Call(
      life_,
      [this, pod, name = node->first] {
        const Status status = server_.Bind({.ns = pod.meta.ns,
                                            .pod = pod.meta.name,
                                            .uid = pod.meta.uid,
                                            .node = name,
                                            .annotations = {}});
        if (status.ok()) bypassed_.insert(pod.meta.uid);
        return status;
      },
      [this, uid = pod.meta.uid](const Status&) { RetryLater(uid); });
}

void KubeScheduler::Schedule(const kube::PodObject& pod, Waiting& waiting) {
  Replica* leader = Leader();
  if (leader == nullptr) return RetryLater(pod.meta.uid);
  waiting.busy = true;
  const auto answered = std::make_shared<bool>(false);
  leader->Handle([this, pod, answered, life = std::weak_ptr(life_)](scheduler::Extender* extender) {
    // The replica processes the request even if kube-scheduler no longer waits.
    const CycleResult decision = extender != nullptr ? Decide(*extender, pod) : CycleResult();
    if (life.expired() || std::exchange(*answered, true)) return;
    OnDecision(pod, decision);
  });
  world_.After(kHttpTimeout, life_, [this, uid = pod.meta.uid, answered] {
    if (!std::exchange(*answered, true)) RetryLater(uid);
  });
}

KubeScheduler::CycleResult KubeScheduler::Decide(scheduler::Extender& extender,
                                                 const kube::PodObject& pod) {
  scheduler::ExtenderArgs args{.pod = pod};
  for (const auto& [name, node] : server_.nodes()) {
    if (!node.unschedulable) args.node_names.push_back(name);
  }
  const scheduler::FilterResult fits = extender.Filter(args);
  if (!fits.error.empty()) return {};
  if (fits.fitting.empty()) return Preempt(extender, pod);
  size_t chosen = fits.fitting[0];
  if (fits.fitting.size() > 1) {
    scheduler::ExtenderArgs fitting{.pod = pod};
    for (const size_t position : fits.fitting)
      fitting.node_names.push_back(args.node_names[position]);
    const std::vector<int> scores = extender.Prioritize(fitting);
    size_t best =
        static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    // Other score plugins change the result sometimes.
    if (world_.Chance(10)) best = world_.random().Below(scores.size());
    chosen = fits.fitting[best];
  }
  return {.node = std::string(args.node_names[chosen]), .victims = {}};
}

// Proposes the pod of the lowest priority on each node, and sometimes one more, because
// kube-scheduler counts resources and does not know on which GPUs they are.
KubeScheduler::CycleResult KubeScheduler::Preempt(scheduler::Extender& extender,
                                                  const kube::PodObject& pod) {
  scheduler::PreemptionArgs args{.pod = pod};
  std::map<std::string, const kube::PodObject*> lowest;
  for (const auto& [name, other] : server_.pods()) {
    if (other.node_name.empty() || other.ended() || other.priority >= pod.priority) continue;
    const auto node = server_.nodes().find(other.node_name);
    if (node == server_.nodes().end() || node->second.unschedulable) continue;
    // The earlier victims of the pod have not ended yet.
    if (other.meta.deleting && other.node_name == pod.nominated_node) return {};
    const kube::PodObject*& known = lowest[other.node_name];
    if (known == nullptr || other.priority < known->priority) known = &other;
    if (world_.Chance(10)) args.victims[other.node_name].uids.push_back(other.meta.uid);
  }
  for (const auto& [node, victim] : lowest) {
    std::vector<Uid>& uids = args.victims[node].uids;
    if (std::find(uids.begin(), uids.end(), victim->meta.uid) == uids.end()) {
      uids.push_back(victim->meta.uid);
    }
  }
  if (args.victims.empty()) return {};
  const scheduler::Victims victims = extender.Preempt(args);
  for (const auto& [node, of_node] : victims) {
    if (of_node.uids.empty()) world_.Fail("preempt named node " + node + " without victims");
    for (const Uid& uid : of_node.uids) {
      const kube::PodObject* victim = server_.Find(uid);
      if (victim != nullptr && victim->priority >= pod.priority) {
        world_.Fail(
            fmt::format("{} would evict {} of the same or higher priority", pod.meta.uid, uid));
      }
    }
  }
  if (victims.empty()) return {};
  const auto best = std::min_element(victims.begin(), victims.end(), [](auto& a, auto& b) {
    return a.second.pdb_violations < b.second.pdb_violations;
  });
  return {.node = best->first, .victims = best->second.uids};
}

void KubeScheduler::OnDecision(const kube::PodObject& pod, const CycleResult& decision) {
  if (decision.node.empty() || !decision.victims.empty()) {
    if (decision.node != pod.nominated_node) Nominate(pod.meta.uid, decision.node);
    for (const Uid& uid : decision.victims) {
      server_.Call(
          life_,
          [this, uid] {
            if (const kube::PodObject* known = server_.Find(uid); known && !known->meta.deleting) {
              world_.Note("preempted " + uid.str());
              ++preemptions_;
              kube::PodObject victim = *known;
              victim.meta.deleting = true;
              server_.Put(std::move(victim));
            }
            return Status();
          },
          [](const Status&) {});
    }
    return RetryLater(pod.meta.uid);
  }
  BindSoon(pod, decision.node);
}

void KubeScheduler::Nominate(const Uid& uid, const std::string& node) {
  server_.Call(
      life_,
      [this, uid, node] {
        const kube::PodObject* known = server_.Find(uid);
        if (known == nullptr || !known->node_name.empty()) return Status();
        kube::PodObject pod = *known;
        pod.nominated_node = node;
        server_.Put(std::move(pod));
        return Status();
      },
      [](const Status&) {});
}

void KubeScheduler::BindSoon(const kube::PodObject& pod, const std::string& node) {
  world_.After(
      world_.Between(1ms, world_.Chance(90) ? Duration(50ms) : Duration(7s)), life_,
      [this, pod, node] {
        const auto answered = std::make_shared<bool>(false);
        const auto once = [this, answered, uid = pod.meta.uid](const Status& status) {
          if (std::exchange(*answered, true)) return;
          if (!status.ok()) world_.Note("not bound: " + uid.str() + ": " + status.message());
          RetryLater(uid);
        };
        Replica* leader = Leader();
        if (leader == nullptr) return once(Status(Code::kUnavailable, "no replica leads"));
        // If the leader crashes or is suspended, kube-scheduler times out.
        world_.After(kHttpTimeout, life_, [once] { once(Status(Code::kUnavailable, "timeout")); });
        leader->Handle(
            [this, pod, node, once, life = std::weak_ptr(life_)](scheduler::Extender* extender) {
              if (extender == nullptr) return once(Status(Code::kUnavailable, "does not lead"));
              extender->Bind({pod.meta.name, pod.meta.ns, pod.meta.uid, node},
                             [this, once, life](const Status& status) {
                               if (const Life alive = life.lock()) {
                                 world_.After(world_.Between(1ms, 5ms), alive,
                                              [once, status] { once(status); });
                               }
                             });
            });
      });
}

}  // namespace tessera::simulation
