// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "api/names.h"
#include "src/agent/pods/kube_pods.h"
#include "src/device/assignment.h"
#include "src/ledger/testing/assigned_gpus.h"
#include "src/ledger/testing/objects.h"

namespace tessera::simulation {
namespace {

using namespace std::chrono_literals;

// Quota of the namespace of all pods, in GPUs; below the cluster's capacity.
constexpr int64_t kQuota = 26;

class History {
 public:
  explicit History(const HistoryOptions& options)
      : options_(options), world_(options.seed), server_(world_), truth_(world_) {
    for (int i = 0; i < options.nodes; ++i) {
      nodes_.push_back(
          std::make_unique<Node>(world_, server_, truth_, fmt::format("n{}", i), options.gpus));
    }
    server_.SetQuota(fmt::format(R"({{"ns":{{"quota":{{"A100":{}}}}}}})", kQuota));
    kube::PodDisruptionBudgetObject budget{
        .meta = {.name = "guarded", .ns = "ns", .uid = Uid("b"), .resource_version = "1"}};
    budget.selector.emplace().requirements.push_back(
        {"guarded", kube::LabelSelector::Operator::kExists, {}});
    server_.Put(std::move(budget));
    for (int i = 0; i < 2; ++i) {
      replicas_.push_back(std::make_unique<Replica>(world_, server_, i));
    }
    kube_scheduler_ =
        std::make_unique<KubeScheduler>(world_, server_, replicas_, options.bypass_percent);
  }

  Outcome Play() {
    chaos_ = Born();
    world_.Every(300ms, chaos_, [this] { CreateOrDeletePod(); });
    world_.Every(2s, chaos_, [this] { InjectFault(); });
    RunFor(options_.chaos);
    chaos_.reset();
    EndFaults();
    RunFor(3min);
    ExpectRepaired();
    ExpectEverythingRuns();
    ExpectLedgerMatchesAnnotations();
    DeleteAll();
    for (int i = 0; i < 8 && !IsEmpty(); ++i) RunFor(30s);
    RunFor(30s);
    ExpectEmpty();
    return {.failure = world_.failure(),
            .fingerprint = world_.fingerprint(),
            .events = world_.events(),
            .containers = truth_.started(),
            .grants_from_memory = GrantsFromMemory(),
            .stale_bindings = server_.stale_bindings().size(),
            .repairs = Repairs(),
            .preemptions = kube_scheduler_->preemptions(),
            .last_notes = {world_.notes().begin(), world_.notes().end()}};
  }

 private:
  size_t GrantsFromMemory() const {
    size_t sum = 0;
    for (const auto& node : nodes_) sum += node->agent().granted_from_memory();
    return sum;
  }

  uint64_t Repairs() const {
    uint64_t sum = 0;
    for (const auto& replica : replicas_) sum += replica->repairs();
    return sum;
  }

  void RunFor(Duration time) {
    for (; time > Duration::zero() && world_.failure().empty(); time -= 100ms) {
      world_.runner().AdvanceTimeAndRun(100ms);
      NoteNominations();
      if (std::exchange(checked_assignments_, server_.assignments()) < server_.assignments()) {
        ExpectNotOversubscribed();
        ExpectQuotaKept();
        ExpectNominationsKept();
      }
    }
  }

  void CreateOrDeletePod() {
    const std::string name = fmt::format("p{}", world_.random().Below(options_.names));
    const auto known = server_.pods().find(name);
    if (known == server_.pods().end()) return server_.Put(MakePod(name));
    kube::PodObject pod = known->second;
    if (pod.meta.deleting) return;
    const bool by_force = world_.Chance(10);
    if (pod.node_name.empty() || pod.ended() || by_force) return server_.Remove(pod);
    pod.meta.deleting = true;
    server_.Put(std::move(pod));
  }

  kube::PodObject MakePod(const std::string& name) {
    using Limits = std::map<std::string_view, std::string>;
    static const std::vector<Limits> kLimits = {
        {{names::kResourceGpu, "1"}},
        {{names::kResourceGpu, "2"}},
        {{names::kResourceGpuMem, "30"}},
        {{names::kResourceGpuMem, "7"}},
        {{names::kResourceVcudaCore, "40"}, {names::kResourceVcudaMemory, "100"}},
        {{names::kResourceVcudaCore, "100"}}};
    kube::PodObject pod =
        ledger::testing::GpuPod(name, kLimits[world_.random().Below(kLimits.size())]);
    pod.meta.uid = Uid(fmt::format("u{}", next_uid_++));
    pod.meta.has_controller = true;
    pod.meta.created = std::chrono::floor<std::chrono::seconds>(world_.clock().WallNow());
    if (world_.Chance(20)) pod.meta.labels["guarded"] = "yes";
    constexpr int32_t kPriorities[] = {0, 0, 0, 100, 1000};
    pod.priority = kPriorities[world_.random().Below(5)];
    if (world_.Chance(15)) {  // two containers, with shared or separate GPUs
      kube::Container second = pod.containers[0];
      second.name = "second";
      pod.containers.push_back(std::move(second));
    }
    if (world_.Chance(15)) {
      kube::Container init = pod.containers[0];
      init.name = "init";
      init.kind = kube::ContainerKind::kInit;
      pod.containers.insert(pod.containers.begin(), std::move(init));
    }
    return pod;
  }

  void InjectFault() {
    Node& node = *nodes_[world_.random().Below(nodes_.size())];
    switch (world_.random().Below(12)) {
      case 0:
      case 1:
        if (node.agent().running()) node.agent().Crash();
        return;
      case 2:
        return node.agent().disk().SetKillPercent(world_.random().Below(20));
      case 3:
        return replicas_[world_.random().Below(2)]->Crash();
      case 4:
        world_.Note("the API server is down");
        server_.SetDown(true);
        for (const auto& each : nodes_) {
          if (each->agent().running() && world_.Chance(20)) each->agent().Crash();
        }
        return world_.runner().PostDelayed(world_.Between(500ms, 12s),
                                           [this] { server_.SetDown(false); });
      case 5:
        // While a GPU is unhealthy the nominated pod may not fit, and then nothing is reserved for
        // it.
        for (auto& [key, since] : nominated_since_) {
          if (key.ends_with(" on " + node.name()))
            since = world_.clock().Now() + Node::kMaxUnhealthy;
        }
        return node.BreakGpu();
      case 6: {
        const auto known = server_.nodes().find(
            fmt::format("n{}", world_.random().Below(static_cast<uint64_t>(options_.nodes))));
        if (known == server_.nodes().end()) return;
        kube::NodeObject object = known->second;
        object.unschedulable = !object.unschedulable;
        return server_.Put(std::move(object));
      }
      case 7:
        // Mostly longer than the lease duration.
        return replicas_[world_.random().Below(2)]->Suspend(
            world_.Chance(70) ? Duration(30s) : world_.Between(1s, 14s));
      case 8:
        left_[node.name()] = world_.clock().Now();
        node.Leave();
        return world_.After(world_.Between(2s, 20s), chaos_, [&node] { node.Join(); });
    }
  }

  void EndFaults() {
    world_.Note("calm");
    server_.SetDown(false);
    server_.SetCalm();
    for (const auto& node : nodes_) {
      node->agent().disk().SetKillPercent(0);
      node->Join();
    }
    for (const auto& [name, node] : std::map(server_.nodes())) {
      kube::NodeObject object = node;
      object.unschedulable = false;
      server_.Put(std::move(object));
    }
  }

  // Pods may wait if they exceed the cluster's capacity, but bound pods must run, except pods that
  // bypassed the scheduler to a node without room.
  void ExpectEverythingRuns() {
    for (const auto& node : nodes_) {
      for (const std::string& container : node->stuck()) {
        const Uid uid(container.substr(0, container.find('/')));
        const kube::PodObject* pod = server_.Find(uid);
        const bool bypassed = kube_scheduler_->bypassed().contains(uid);
        if (pod != nullptr && bypassed && !WouldFit(*pod)) continue;
        world_.Fail("never started: " + container);
      }
    }
  }

  // Whether the leader has assumed the pod on another node than the nominated one.
  bool IsAssumedElsewhere(const kube::PodObject& pod) const {
    const Replica* leader = Leader();
    if (leader == nullptr) return false;
    const ledger::PodEntry* entry = leader->ledger().FindPod(pod.meta.ns, pod.meta.name);
    return entry != nullptr && entry->request.uid == pod.meta.uid &&
           entry->binding_state == ledger::BindingState::kAssumed &&
           entry->node != pod.nominated_node;
  }

  // Whether the annotations name the GPUs of each container that requests GPUs.
  static bool IsAssigned(const kube::PodObject& pod) {
    const auto text = pod.meta.annotations.find(names::kAnnotationAssignment);
    if (text == pod.meta.annotations.end()) return false;
    const auto& assigned = ledger::testing::DecodeCached(text->second).containers;
    const auto info = agent::PodInfoOf(pod, device::MemoryUnit::kGiB);
    if (!info->request.ok()) return true;
    return std::ranges::all_of(info->request->containers, [&](const auto& container) {
      return container.dialect == device::Dialect::kNone || assigned.contains(container.name);
    });
  }

  // A ledger of the API server's current objects, without some of the pods.
  std::unique_ptr<ledger::ClusterLedger> MakeLedger(
      const std::function<bool(const kube::PodObject&)>& without) const {
    auto ledger = ledger::ClusterLedger::Make({.policy = "BestFit"}, &world_.clock()).value();
    for (const auto& [name, node] : server_.nodes()) ledger->SetNode(node);
    for (const auto& [name, pod] : server_.pods()) {
      if (!pod.node_name.empty() && !without(pod)) ledger->SetPod(pod);
    }
    return ledger;
  }

  bool WouldFit(const kube::PodObject& bound) const {
    const auto ledger = MakeLedger([&](const auto& pod) { return pod.meta.uid == bound.meta.uid; });
    auto query = ledger->MakeQuery(bound);
    return query.ok() && ledger->Evaluate(*query, bound.node_name).fits;
  }

  void DeleteAll() {
    world_.Note("everything is deleted");
    for (const auto& [name, known] : std::map(server_.pods())) {
      kube::PodObject pod = known;
      if (pod.node_name.empty() || pod.ended()) {
        server_.Remove(pod);
        continue;
      }
      pod.meta.deleting = true;
      server_.Put(std::move(pod));
    }
  }

  bool IsEmpty() const {
    return server_.pods().empty() && truth_.running() == 0 &&
           std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->agent().entries() == 0; });
  }

  void ExpectEmpty() {
    if (!world_.failure().empty()) return;
    if (!server_.pods().empty()) world_.Fail("pods are left: " + server_.pods().begin()->first);
    if (truth_.running() > 0) world_.Fail("containers are left");
    for (const auto& node : nodes_) {
      if (node->agent().entries() > 0) world_.Fail("an agent's ledger is not empty");
    }
    ExpectLedgerMatchesAnnotations();
  }

  const Replica* Leader() const {
    for (const auto& replica : replicas_) {
      if (replica->decides()) return replica.get();
    }
    return nullptr;
  }

  // One replica leads and the EndpointSlice names it; its ledger has for each GPU the same compute
  // and memory as the pods' annotations.
  void ExpectLedgerMatchesAnnotations() {
    if (!world_.failure().empty()) return;
    const Replica* leader = Leader();
    if (leader == nullptr) return world_.Fail("no replica leads");
    if (server_.LeaderAddress() != leader->address()) {
      return world_.Fail(fmt::format("the EndpointSlice names \"{}\", and {} leads",
                                     server_.LeaderAddress(), leader->address()));
    }
    // The scheduler guesses the GPUs of a bound pod without a complete assignment.
    for (const auto& [name, pod] : server_.pods()) {
      if (!pod.node_name.empty() && !pod.ended() && !IsAssigned(pod)) return;
    }
    const ledger::testing::AssignedGpus given(server_.pods());
    const placement::Cluster& cluster = leader->ledger().cluster();
    for (const auto& [name, node] : leader->ledger().nodes()) {
      const placement::NodeView view = cluster.node(node.id);
      for (size_t i = 0; i < view.gpus.size(); ++i) {
        const std::string uuid(cluster.uuid(node.id, i));
        const auto milli = given.milli().find(uuid);
        const int64_t wanted_milli = milli == given.milli().end() ? 0 : milli->second;
        const int64_t wanted_bytes = given.bytes(uuid, Bytes(kGpuBytes));
        const int64_t has_milli = 1000 - view.gpus[i].free_milli;
        const int64_t has_bytes = view.gpus[i].total_bytes - view.gpus[i].free_bytes;
        if (has_milli == wanted_milli && has_bytes == wanted_bytes) continue;
        world_.Fail(fmt::format(
            "for {} the scheduler counts {} thousandths of the GPU and {} bytes, but the "
            "annotations have {} and {}",
            uuid, has_milli, has_bytes, wanted_milli, wanted_bytes));
      }
    }
  }

  // Checks oversubscription by the annotations of bound pods, which schedulers use. A GPU may be
  // oversubscribed only by a write of a former leader, or by a pod that bypassed the scheduler.
  void ExpectNotOversubscribed() {
    for (const auto& [name, pod] : server_.pods()) {
      if (!pod.node_name.empty()) bound_.try_emplace(pod.meta.uid, world_.clock().Now());
    }
    const ledger::testing::AssignedGpus given(server_.pods());
    for (const std::string& uuid : given.AllOversubscribed(Bytes(kGpuBytes))) {
      bool explained = false;
      std::string holders;
      for (const auto& [name, pod] : server_.pods()) {
        const auto text = pod.meta.annotations.find(names::kAnnotationAssignment);
        if (text == pod.meta.annotations.end() || pod.ended()) continue;
        if (text->second.find('"' + uuid + '"') == std::string::npos) continue;
        explained = explained || !IsBoundByLeader(pod);
        holders += fmt::format(" {} ({}{})", pod.meta.uid, text->second,
                               pod.meta.deleting ? ", deleting" : "");
      }
      if (!explained) world_.Fail(uuid + " is assigned twice:" + holders);
    }
  }

  // Whether a replica bound the pod while it led.
  bool IsBoundByLeader(const kube::PodObject& pod) const {
    return !server_.stale_bindings().contains(pod.meta.uid) &&
           !kube_scheduler_->bypassed().contains(pod.meta.uid);
  }

  void ExpectRepaired() {
    const ledger::testing::AssignedGpus given(server_.pods());
    for (const std::string& uuid : given.AllOversubscribed(Bytes(kGpuBytes))) {
      world_.Fail(uuid + " is still assigned twice");
    }
  }

  // Whether the pod's node was deleted after the pod was bound, or up to 45 s before. The scheduler
  // then does not know the pod's GPUs.
  bool WasNodeDeleted(const kube::PodObject& pod) const {
    const auto left = left_.find(pod.node_name);
    const auto bound = bound_.find(pod.meta.uid);
    return left != left_.end() && bound != bound_.end() && bound->second < left->second + 45s;
  }

  void ExpectQuotaKept() {
    int64_t milli = 0;
    for (const auto& [name, pod] : server_.pods()) {
      const auto text = pod.meta.annotations.find(names::kAnnotationAssignment);
      if (text == pod.meta.annotations.end() || pod.ended() || !IsBoundByLeader(pod)) continue;
      if (WasNodeDeleted(pod)) continue;
      for (const auto& [container, shares] :
           ledger::testing::DecodeCached(text->second).containers) {
        if (container == "init") continue;
        for (const device::DeviceShare& share : shares) {
          const int64_t by_memory = (share.memory.count() * 1000 + kGpuBytes - 1) / kGpuBytes;
          milli += share.compute.count() > 0 ? share.compute.count() : by_memory;
        }
      }
    }
    if (milli > kQuota * 1000) {
      world_.Fail(fmt::format("{} thousandths of a GPU are assigned with a quota of {}", milli,
                              kQuota * 1000));
    }
  }

  // Records since when GPUs are reserved for pods, and since when pods are being deleted. Called at
  // every step, because a pod may be assumed on another node for a moment, without a reservation
  // meanwhile.
  void NoteNominations() {
    const MonotonicTime now = world_.clock().Now();
    std::set<std::string> nominated;
    for (const auto& [name, pod] : server_.pods()) {
      if (pod.meta.deleting) {
        leaving_since_.try_emplace(pod.meta.uid, now);
      } else if (pod.node_name.empty() && !pod.nominated_node.empty()) {
        const auto known = nominated_since_.try_emplace(NominationOf(pod), now).first;
        if (IsAssumedElsewhere(pod)) known->second = now;
        nominated.insert(known->first);
      }
    }
    std::erase_if(nominated_since_, [&](const auto& e) { return !nominated.contains(e.first); });
  }

  static std::string NominationOf(const kube::PodObject& pod) {
    return pod.meta.uid.str() + " on " + pod.nominated_node;
  }

  // A pod of lower priority must not take GPUs that a nominated pod would get, once the nomination
  // is older than any watch delay. Checked when that pod is bound, because later a pod of higher
  // priority may take the rest.
  void ExpectNominationsKept() {
    constexpr Duration kMaxWatchDelay = 45s;
    // The longest time between a decision and its binding, in which pods may have been deleted or
    // created.
    constexpr Duration kMaxBindDelay = 10s;
    const MonotonicTime now = world_.clock().Now();
    const auto has_left = [&](const kube::PodObject& pod) {
      const auto since = leaving_since_.find(pod.meta.uid);
      return since != leaving_since_.end() && now - since->second >= kMaxBindDelay;
    };
    for (const auto& [name, pod] : server_.pods()) {
      const auto since = nominated_since_.find(NominationOf(pod));
      if (since == nominated_since_.end() || now - since->second < kMaxWatchDelay) continue;
      const auto came_now = [&](const kube::PodObject& other) {
        return other.node_name == pod.nominated_node && other.priority < pod.priority &&
               IsBoundByLeader(other) && !server_.late_bindings().contains(other.meta.uid) &&
               bound_.contains(other.meta.uid) && bound_.at(other.meta.uid) == now;
      };
      const auto may_take_it = [&](const kube::PodObject& other) {
        const auto bound = bound_.find(other.meta.uid);
        return other.priority > pod.priority && bound != bound_.end() &&
               now - bound->second < kMaxBindDelay;
      };
      std::string takers;
      for (const auto& [other_name, other] : server_.pods()) {
        if (came_now(other)) takers += fmt::format(" {} ({})", other.meta.uid, other.priority);
      }
      if (takers.empty()) continue;
      const auto fits = [&](const std::function<bool(const kube::PodObject&)>& without) {
        const auto ledger = MakeLedger([&](const auto& other) {
          return has_left(other) || may_take_it(other) || without(other);
        });
        auto query = ledger->MakeQuery(pod);
        return query.ok() && ledger->Evaluate(*query, pod.nominated_node).fits;
      };
      if (!fits(came_now) || fits([](const auto&) { return false; })) continue;
      world_.Fail(fmt::format("GPUs reserved for {} ({}) went to pods of lower priority:{}",
                              since->first, pod.priority, takers));
    }
  }

  const HistoryOptions options_;
  World world_;
  ApiServer server_;
  Truth truth_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<KubeScheduler> kube_scheduler_;
  Life chaos_;
  int next_uid_ = 0;
  size_t checked_assignments_ = 0;  // last checked value of the API server's assignments()
  std::map<std::string, MonotonicTime> left_;             // time of each node's last deletion
  std::map<Uid, MonotonicTime> bound_;                    // when first observed as bound
  std::map<Uid, MonotonicTime> leaving_since_;            // when first observed as being deleted
  std::map<std::string, MonotonicTime> nominated_since_;  // by "UID on node"
};

}  // namespace

Outcome Play(const HistoryOptions& options) { return History(options).Play(); }

}  // namespace tessera::simulation
