// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/history.h"

#include <fmt/format.h>

#include <utility>

#include "src/ledger/testing/given_out.h"
#include "src/ledger/testing/objects.h"

namespace tessera::simulation {
namespace {

using namespace std::chrono_literals;

class History {
 public:
  explicit History(const HistoryOptions& options)
      : options_(options), world_(options.seed), server_(world_), truth_(world_) {
    for (int i = 0; i < options.nodes; ++i) {
      nodes_.push_back(
          std::make_unique<Node>(world_, server_, truth_, fmt::format("n{}", i), options.gpus));
    }
    for (int i = 0; i < 2; ++i) {
      replicas_.push_back(std::make_unique<Replica>(world_, server_, lease_, i));
    }
    kube_scheduler_ = std::make_unique<KubeScheduler>(world_, server_, replicas_, options.past_us);
  }

  Outcome Play() {
    chaos_ = Born();
    world_.Every(300ms, chaos_, [this] { ComeAndGo(); });
    world_.Every(2s, chaos_, [this] { Break(); });
    RunFor(options_.chaos);
    chaos_.reset();
    Mend();
    RunFor(2min);
    if (options_.past_us == 0) ExpectEverythingRuns();
    DeleteAll();
    RunFor(4min);
    ExpectEmpty();
    return {.failure = world_.failure(),
            .fingerprint = world_.fingerprint(),
            .events = world_.events(),
            .containers = truth_.started(),
            .from_memory = FromMemory(),
            .last_notes = {world_.notes().begin(), world_.notes().end()}};
  }

 private:
  size_t FromMemory() const {
    size_t sum = 0;
    for (const auto& node : nodes_) sum += node->agent().granted_from_memory();
    return sum;
  }

  void RunFor(Duration time) {
    for (; time > Duration::zero() && world_.failure().empty(); time -= 100ms) {
      world_.runner().AdvanceTimeAndRun(100ms);
      if (options_.past_us == 0 &&
          std::exchange(looked_at_, server_.version()) < server_.version()) {
        ExpectConserved();
      }
    }
  }

  void ComeAndGo() {
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
    pod.meta.uid = fmt::format("u{}", next_uid_++);
    if (world_.Chance(15)) {  // two containers that share or have their own
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

  void Break() {
    Node& node = *nodes_[world_.random().Below(nodes_.size())];
    switch (world_.random().Below(10)) {
      case 0:
      case 1:
        if (node.agent().running()) node.agent().Crash();
        return;
      case 2:
        return node.agent().disk().SetDanger(world_.random().Below(20));
      case 3:
        return replicas_[world_.random().Below(2)]->Crash();
      case 4:
        world_.Note("the API server is away");
        server_.SetDown(true);
        for (const auto& each : nodes_) {
          if (each->agent().running() && world_.Chance(20)) each->agent().Crash();
        }
        return world_.runner().PostDelayed(world_.Between(500ms, 12s),
                                           [this] { server_.SetDown(false); });
      case 5:
        return node.FallIll();
      case 6:
        kube::NodeObject object = server_.nodes().at(
            fmt::format("n{}", world_.random().Below(static_cast<uint64_t>(options_.nodes))));
        object.unschedulable = !object.unschedulable;
        return server_.Put(std::move(object));
    }
  }

  void Mend() {
    world_.Note("calm");
    server_.SetDown(false);
    server_.SetCalm();
    for (const auto& node : nodes_) node->agent().disk().SetDanger(0);
    for (const auto& [name, node] : std::map(server_.nodes())) {
      kube::NodeObject object = node;
      object.unschedulable = false;
      server_.Put(std::move(object));
    }
  }

  // Pods that wait beyond what the cluster has are all right; what is bound runs.
  void ExpectEverythingRuns() {
    for (const auto& node : nodes_) {
      for (const std::string& container : node->stuck()) world_.Fail("never started: " + container);
    }
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

  void ExpectEmpty() {
    if (!world_.failure().empty()) return;
    if (!server_.pods().empty()) world_.Fail("pods are left: " + server_.pods().begin()->first);
    if (truth_.running() > 0) world_.Fail("containers are left");
    for (const auto& node : nodes_) {
      if (node->agent().entries() > 0) world_.Fail("an agent's ledger is not empty");
    }
    bool led = false;
    for (const auto& replica : replicas_) {
      if (replica->extender() == nullptr) continue;
      led = true;
      const placement::Cluster& cluster = replica->ledger()->cluster();
      if (cluster.free_milli() != 1000 * options_.nodes * options_.gpus) {
        std::string pods;
        for (const auto& [uid, pod] : replica->ledger()->pods()) pods += " " + uid;
        world_.Fail(fmt::format("the scheduler has {} of {} thousandths free; its pods:{}",
                                cluster.free_milli(), cluster.total_milli(), pods));
      }
    }
    if (!led) world_.Fail("nobody leads");
  }

  // By what is written on bound pods, which is what schedulers decide by.
  void ExpectConserved() {
    const std::string gpu = ledger::testing::GivenOut(server_.pods()).Oversold(Bytes(kGpuBytes));
    if (!gpu.empty()) world_.Fail(gpu + " is assigned twice");
  }

  const HistoryOptions options_;
  World world_;
  ApiServer server_;
  Truth truth_;
  Lease lease_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<KubeScheduler> kube_scheduler_;
  Life chaos_;
  int next_uid_ = 0;
  size_t looked_at_ = 0;  // version of the API server's objects
};

}  // namespace

Outcome Play(const HistoryOptions& options) { return History(options).Play(); }

}  // namespace tessera::simulation
