// SPDX-License-Identifier: Apache-2.0
// Random histories of a cluster. Pods are created, scheduled, bound, deleted and created again
// under the same names; nodes are added, changed and removed; watch events arrive late and in
// batches; schedulers crash and restart, and a standby takes over. At every step no GPU is
// oversubscribed, and a ledger built from the objects alone equals the ledger that followed the
// history.
#include <gtest/gtest.h>

#include <deque>

#include "api/names.h"
#include "src/base/random.h"
#include "src/device/assignment.h"
#include "src/ledger/ledger.h"
#include "src/ledger/testing/assigned_gpus.h"
#include "src/ledger/testing/objects.h"

namespace tessera::ledger {
namespace {

using namespace std::chrono_literals;
using testing::GpuNode;
using testing::GpuPod;

// The API server's objects, and all watch events that it has sent.
struct World {
  struct LoggedEvent {
    bool is_removal = false;
    std::optional<kube::NodeObject> node;
    std::optional<kube::PodObject> pod;
  };

  std::map<std::string, kube::NodeObject> nodes;
  std::map<std::string, kube::PodObject> pods;  // by name
  std::vector<LoggedEvent> events;

  void Put(kube::NodeObject node) {
    nodes[node.meta.name] = node;
    events.push_back({.node = std::move(node)});
  }
  void Put(kube::PodObject pod) {
    pods[pod.meta.name] = pod;
    events.push_back({.pod = std::move(pod)});
  }
  void Remove(const kube::NodeObject& node) {
    events.push_back({.is_removal = true, .node = node});
    nodes.erase(node.meta.name);
  }
  void Remove(const kube::PodObject& pod) {
    events.push_back({.is_removal = true, .pod = pod});
    pods.erase(pod.meta.name);
  }
  // Acts like the binding subresource: node and annotations are written together or not at all.
  bool Bind(const kube::PodObject& decided, const std::string& node, const StringMap& annotations) {
    const auto now = pods.find(decided.meta.name);
    if (now == pods.end() || now->second.meta.uid != decided.meta.uid ||
        !now->second.node_name.empty() || now->second.meta.deleting) {
      return false;
    }
    Put(testing::BoundPod(now->second, node, annotations));
    return true;
  }
};

// One replica: a ledger that has received the first `received_` watch events.
class Replica {
 public:
  Replica(const World& world, const Clock& clock) : world_(world), clock_(clock) { Restart(); }

  // Restarts from the API server's current objects.
  void Restart() {
    ledger_ = ClusterLedger::Make({}, &clock_).value();
    for (const auto& [name, node] : world_.nodes) ledger_->SetNode(node);
    for (const auto& [name, pod] : world_.pods) ledger_->SetPod(pod);
    received_ = world_.events.size();
  }
  void Receive(size_t count) {
    for (; count > 0 && received_ < world_.events.size(); --count) {
      const World::LoggedEvent& event = world_.events[received_++];
      if (event.node && event.is_removal) ledger_->RemoveNode(event.node->meta.name);
      if (event.node && !event.is_removal) ledger_->SetNode(*event.node);
      if (event.pod && event.is_removal) ledger_->RemovePod(event.pod->meta.uid);
      if (event.pod && !event.is_removal) ledger_->SetPod(*event.pod);
    }
  }
  size_t behind() const { return world_.events.size() - received_; }
  ClusterLedger& ledger() { return *ledger_; }

 private:
  const World& world_;
  const Clock& clock_;
  std::unique_ptr<ClusterLedger> ledger_;
  size_t received_ = 0;
};

// Compares the free GPUs and the holders of two ledgers.
void ExpectSame(ClusterLedger& a, ClusterLedger& b) {
  EXPECT_EQ(a.cluster().free_milli(), b.cluster().free_milli());
  for (const auto& [name, node] : a.nodes()) {
    const auto there = b.nodes().find(name);
    ASSERT_NE(there, b.nodes().end());
    const auto mine = a.cluster().node(node.id), theirs = b.cluster().node(there->second.id);
    EXPECT_EQ(mine->cpu_free, theirs->cpu_free) << name;
    for (size_t i = 0; i < mine.gpus.size() && i < theirs.gpus.size(); ++i) {
      EXPECT_EQ(mine.gpus[i].free_bytes, theirs.gpus[i].free_bytes) << name << " " << i;
    }
  }
  EXPECT_EQ(a.pods().size(), b.pods().size());
}

class LedgerPropertyTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  LedgerPropertyTest() : random_(GetParam()) {
    for (int i = 0; i < 4; ++i) world_.Put(GpuNode(NodeName(i), 4));
    for (int i = 0; i < 2; ++i) replicas_.push_back(std::make_unique<Replica>(world_, clock_));
  }

  static std::string NodeName(uint64_t i) { return fmt::format("n{}", i); }
  Replica& leader() { return *replicas_[leader_]; }

  void CreateOrDelete() {
    const std::string name = fmt::format("p{}", random_.Below(30));
    const auto known = world_.pods.find(name);
    if (known == world_.pods.end()) {
      static const std::vector<std::map<std::string_view, std::string>> kRequests = {
          {{names::kResourceGpu, "1"}},
          {{names::kResourceGpu, "3"}},
          {{names::kResourceGpuMem, "30"}},
          {{names::kResourceGpuMem, "7"}},
          {{names::kResourceVcudaCore, "40"}, {names::kResourceVcudaMemory, "100"}},
          {{names::kResourceVcudaCore, "200"}},
          {}};
      kube::PodObject pod = GpuPod(name, kRequests[random_.Below(kRequests.size())]);
      pod.meta.uid = Uid(fmt::format("uid-{}", next_uid_++));
      world_.Put(std::move(pod));
      return;
    }
    kube::PodObject pod = known->second;
    if (random_.Below(2) == 0 && !pod.meta.deleting) {
      pod.meta.deleting = true;
      return world_.Put(std::move(pod));
    }
    if (random_.Below(2) == 0) pod.phase = kube::PodPhase::kSucceeded;
    if (pod.ended()) world_.Put(pod);
    world_.Remove(pod);
  }

  // Makes a decision. Some decisions are never bound, some bindings are lost, some fail.
  void Decide() {
    std::vector<kube::PodObject> waiting;
    for (const auto& [name, pod] : world_.pods) {
      if (pod.node_name.empty() && !pod.meta.deleting) waiting.push_back(pod);
    }
    if (waiting.empty()) return;
    const kube::PodObject pod = waiting[random_.Below(waiting.size())];
    ClusterLedger& ledger = leader().ledger();
    const auto query = ledger.MakeQuery(pod);
    ASSERT_TRUE(query.ok());
    const std::string node = NodeName(random_.Below(5));
    ClusterLedger::Query evaluated = *query;
    const bool fits = ledger.Evaluate(evaluated, node).fits;
    const bool expires = random_.Below(8) == 0;
    const auto assumed = ledger.Assume(*query, node, expires ? 10s : 24h);
    if (query->requests_gpus()) {
      EXPECT_EQ(fits, assumed.ok());
    }
    if (!assumed.ok() || expires) return;
    if (!world_.Bind(pod, node, assumed->annotations)) ledger.DropAssumption(pod.meta.uid);
  }

  void ChangeNode() {
    const std::string name = NodeName(random_.Below(4));
    const auto known = world_.nodes.find(name);
    // The pods of a deleted node are deleted too, as the pod garbage collector does.
    if (known == world_.nodes.end()) return world_.Put(GpuNode(name, 4));
    if (random_.Below(4) != 0) {
      kube::NodeObject node = known->second;
      node.unschedulable = !node.unschedulable;
      return world_.Put(std::move(node));
    }
    std::vector<kube::PodObject> orphans;
    for (const auto& [pod_name, pod] : world_.pods) {
      if (pod.node_name == name) orphans.push_back(pod);
    }
    for (const kube::PodObject& pod : orphans) world_.Remove(pod);
    world_.Remove(kube::NodeObject(known->second));
  }

  void Step() {
    switch (random_.Below(12)) {
      case 0:
        return ChangeNode();
      case 1:
        clock_.Advance(std::chrono::seconds(random_.Below(8)));
        (void)leader().ledger().DropExpiredAssumptions();
        return;
      case 2:
        return leader().Restart();
      case 3:
        // The standby takes over. It decides once it has received all events, like a new leader
        // that lists the cluster.
        leader_ = 1 - leader_;
        return leader().Receive(leader().behind());
      case 4:
      case 5:
        return replicas_[random_.Below(2)]->Receive(random_.Below(6));
      case 6:
      case 7:
      case 8:
        return CreateOrDelete();
      default:
        return Decide();
    }
  }

  Random random_;
  FakeClock clock_;
  World world_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  size_t leader_ = 0;
  int next_uid_ = 0;
};

TEST_P(LedgerPropertyTest, NoGpuIsGivenTwiceAndAllLedgersAgree) {
  for (int step = 0; step < 1000; ++step) {
    Step();
    EXPECT_EQ(testing::AssignedGpus(world_.pods).Oversubscribed(GiB(80)), "");
    if (HasFailure()) FAIL() << "seed " << GetParam() << ", step " << step;
  }
  // Once all events are received and all assumptions have ended, the history does not matter.
  clock_.Advance(48h);
  Replica anew(world_, clock_);
  for (const auto& replica : replicas_) {
    replica->Receive(replica->behind());
    (void)replica->ledger().DropExpiredAssumptions();
    ExpectSame(replica->ledger(), anew.ledger());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, LedgerPropertyTest, ::testing::Range<uint64_t>(1, 41));

}  // namespace
}  // namespace tessera::ledger
