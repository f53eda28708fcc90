// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/scheduler.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tessera::simulation {

using namespace std::chrono_literals;

Replica::Replica(World& world, ApiServer& server, Lease& lease, int number)
    : world_(world), server_(server), lease_(lease), number_(number) {
  Start();
}

Replica::~Replica() { End(); }

void Replica::Start() {
  process_ = Born();
  seen_at_ = world_.clock().Now();
  world_.Every(Lease::kRetryPeriod, process_, [this] { Elect(); });
}

void Replica::Crash() {
  world_.Note(fmt::format("scheduler {} crashes", number_));
  End();
  process_.reset();
  // Another process with the same number knows nothing.
  const Life restart = Born();
  world_.runner().PostDelayed(world_.Between(100ms, 5s), [this, restart] { Start(); });
}

void Replica::Elect() {
  if (term_ && !leads()) End();
  if (lease_.renewals != seen_renewals_) {
    seen_renewals_ = lease_.renewals;
    seen_at_ = world_.clock().Now();
  }
  const bool mine = lease_.holder == number_ && term_;
  const bool free = lease_.holder == -1 || world_.clock().Now() - seen_at_ > Lease::kDuration;
  if (!mine && !free) return;
  const MonotonicTime sent = world_.clock().Now();
  server_.Call(
      process_,
      [this, seen = seen_renewals_] {
        // As an update with a resource version: whoever comes second has lost.
        if (lease_.renewals != seen) return Status(Code::kAborted, "somebody else was faster");
        lease_.holder = number_;
        ++lease_.renewals;
        return Status();
      },
      [this, sent](const Status& status) {
        if (!status.ok()) return;
        seen_renewals_ = lease_.renewals;
        seen_at_ = world_.clock().Now();
        led_until_ = sent + Lease::kRenewDeadline;
        if (!term_ && leads()) Begin();
      });
}

void Replica::Begin() {
  world_.Note(fmt::format("scheduler {} leads", number_));
  term_ = Born();
  synced_ = false;
  ledger_ = ledger::ClusterLedger::Make({}, &world_.clock()).value();
  binder_ =
      std::make_unique<scheduler::Binder>(*ledger_, static_cast<scheduler::BindingApi&>(*this),
                                          world_.clock(), [this] { return leads(); });
  extender_ = std::make_unique<scheduler::Extender>(
      *ledger_, *binder_, world_.clock(), metrics_,
      [this](const std::string& key) {
        return feed_ ? feed_->FindPod(key.substr(key.find('/') + 1)) : nullptr;
      },
      [](const kube::PodObject&, kube::EventKind, std::string_view, const std::string&) {},
      scheduler::ExtenderOptions{});
  feed_ =
      std::make_unique<ApiServer::Feed>(world_, server_, static_cast<ApiServer::Listener&>(*this));
  world_.Every(1s, term_, [this] {
    if (!leads()) return End();
    binder_->Tick();
    extender_->Tick();
  });
}

void Replica::End() {
  if (!term_) return;
  world_.Note(fmt::format("scheduler {} leads no more", number_));
  term_.reset();
  feed_.reset();
  extender_.reset();
  binder_.reset();
  ledger_.reset();
}

void Replica::OnPod(const kube::PodObject& pod) {
  ledger_->SetPod(pod);
  if (!synced_) return;
  binder_->OnPod(pod);
  extender_->OnPod(pod);
}

void Replica::OnPodGone(const kube::PodObject& last) {
  ledger_->RemovePod(last.meta.uid);
  if (!synced_) return;
  binder_->OnPodGone(last.meta.uid);
  extender_->OnPodGone(last);
}

kube::Operation Replica::Bind(const kube::PodBinding& binding,
                              std::function<void(const Status&)> on_done) {
  Life request = Born();
  server_.Call(
      request, [this, binding] { return server_.Bind(binding); }, std::move(on_done));
  return kube::Operation([request]() mutable { request.reset(); });
}

kube::Operation Replica::Read(const std::string&, const std::string& name,
                              std::function<void(const Result<kube::PodObject>&)> on_done) {
  Life request = Born();
  const auto read = std::make_shared<Result<kube::PodObject>>(Status(Code::kUnavailable, "away"));
  server_.Call(
      request,
      [this, name, read] {
        const auto pod = server_.pods().find(name);
        *read = pod != server_.pods().end()
                    ? Result<kube::PodObject>(pod->second)
                    : Result<kube::PodObject>(Error(Code::kNotFound, "there is no pod {}", name));
        return Status();
      },
      [read, on_done = std::move(on_done)](const Status& status) {
        on_done(status.ok() ? *read : Result<kube::PodObject>(status));
      });
  return kube::Operation([request]() mutable { request.reset(); });
}

KubeScheduler::KubeScheduler(World& world, ApiServer& server,
                             std::vector<std::unique_ptr<Replica>>& replicas, int past_us)
    : world_(world), server_(server), replicas_(replicas), past_us_(past_us) {
  world_.Every(40ms, life_, [this] { Cycle(); });
}

scheduler::Extender* KubeScheduler::Leader() {
  for (const auto& replica : replicas_) {
    if (scheduler::Extender* extender = replica->extender()) return extender;
  }
  return nullptr;
}

void KubeScheduler::Again(Waiting& waiting) {
  waiting.pause = std::clamp<Duration>(waiting.pause * 2, 1s, 10s);
  waiting.next = world_.clock().Now() + waiting.pause;
}

void KubeScheduler::Cycle() {
  std::set<std::string> there;
  const kube::PodObject* chosen = nullptr;
  for (const auto& [name, pod] : server_.pods()) {
    if (!pod.node_name.empty() || pod.meta.deleting || pod.ended()) continue;
    there.insert(pod.meta.uid);
    const Waiting& waiting = waiting_[pod.meta.uid];
    if (waiting.binding || waiting.next > world_.clock().Now()) continue;
    if (chosen == nullptr || waiting.next < waiting_[chosen->meta.uid].next) chosen = &pod;
  }
  std::erase_if(waiting_, [&](const auto& entry) { return !there.contains(entry.first); });
  if (chosen == nullptr) return;
  const kube::PodObject pod = *chosen;
  Waiting& waiting = waiting_[pod.meta.uid];
  if (waiting.pause == Duration::zero() && world_.Chance(static_cast<uint64_t>(past_us_))) {
    return BindPastUs(pod, waiting);
  }
  Schedule(pod, waiting);
}

// As plain kube-scheduler would: it knows nothing of single GPUs.
void KubeScheduler::BindPastUs(const kube::PodObject& pod, Waiting& waiting) {
  auto node = server_.nodes().begin();
  std::advance(node, world_.random().Below(server_.nodes().size()));
  waiting.binding = true;
  server_.Call(
      life_,
      [this, pod, name = node->first] {
        return server_.Bind({.ns = pod.meta.ns,
                             .pod = pod.meta.name,
                             .uid = pod.meta.uid,
                             .node = name,
                             .annotations = {}});
      },
      [this, uid = pod.meta.uid](const Status&) {
        Waiting& again = waiting_[uid];
        again.binding = false;
        Again(again);
      });
}

void KubeScheduler::Schedule(const kube::PodObject& pod, Waiting& waiting) {
  scheduler::Extender* leader = Leader();
  if (leader == nullptr) return Again(waiting);
  scheduler::ExtenderArgs args{.pod = pod};
  for (const auto& [name, node] : server_.nodes()) {
    if (!node.unschedulable) args.names.push_back(name);
  }
  const scheduler::FilterResult fits = leader->Filter(args);
  if (!fits.error.empty() || fits.fitting.empty()) return Again(waiting);
  size_t chosen = fits.fitting[0];
  if (fits.fitting.size() > 1) {
    scheduler::ExtenderArgs fitting{.pod = pod};
    for (const size_t position : fits.fitting) fitting.names.push_back(args.names[position]);
    const std::vector<int> scores = leader->Prioritize(fitting);
    size_t best =
        static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    // Others score, too.
    if (world_.Chance(10)) best = world_.random().Below(scores.size());
    chosen = fits.fitting[best];
  }
  waiting.binding = true;
  BindSoon(pod, std::string(args.names[chosen]));
}

void KubeScheduler::BindSoon(const kube::PodObject& pod, const std::string& node) {
  world_.After(world_.Between(1ms, world_.Chance(90) ? Duration(50ms) : Duration(7s)), life_,
               [this, pod, node] {
                 const auto done = [this, uid = pod.meta.uid](const Status& status) {
                   Waiting& waiting = waiting_[uid];
                   waiting.binding = false;
                   if (!status.ok()) world_.Note("not bound: " + uid + ": " + status.message());
                   Again(waiting);
                 };
                 scheduler::Extender* leader = Leader();
                 if (leader == nullptr) return done(Status(Code::kUnavailable, "nobody leads"));
                 // Should the leader crash, kube-scheduler hears nothing and gives up.
                 const auto answered = std::make_shared<bool>(false);
                 const auto once = [answered, done](const Status& status) {
                   if (!std::exchange(*answered, true)) done(status);
                 };
                 world_.After(5s, life_, [once] { once(Status(Code::kUnavailable, "timeout")); });
                 leader->Bind({pod.meta.name, pod.meta.ns, pod.meta.uid, node},
                              [this, once](const Status& status) {
                                world_.After(world_.Between(1ms, 5ms), life_,
                                             [once, status] { once(status); });
                              });
               });
}

}  // namespace tessera::simulation
