// SPDX-License-Identifier: Apache-2.0
// Properties of every policy (policy.h) over random histories of arrivals, departures and failures:
// it oversubscribes nothing, rejects nothing that fits, and its results depend only on the state.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "src/placement/fit.h"
#include "src/placement/linked_groups.h"
#include "src/placement/policy.h"
#include "src/placement/quota.h"
#include "src/placement/testing/sample_nodes.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

constexpr int kNodes = 10;
constexpr int64_t kQuotaGpus = 6;

// Unusual nodes: without GPUs, or with GPUs of several sizes and models; with slices beside GPUs;
// with links or without.
NodeSpec RandomNode(std::string name, std::mt19937* random) {
  NodeSpec spec = testing::MakeNode(std::move(name), static_cast<int>((*random)() % 9));
  const bool mixed = (*random)() % 3 == 0;
  const char* model = (*random)() % 2 ? "A100" : "T4";
  for (GpuSpec& gpu : spec.gpus) {
    gpu.model = mixed && (*random)() % 2 ? "V100" : model;
    gpu.memory = GiB(mixed ? 8 << (*random)() % 3 : 16);
    if (mixed && (*random)() % 4 == 0) {
      gpu.mig_profile = "1g.5gb";
      gpu.memory = GiB(5);
    }
    gpu.healthy = (*random)() % 8 != 0;
    if ((*random)() % 10 == 0) gpu.memory = Bytes(0);  // unknown
  }
  spec.cpu_milli = 8000 * static_cast<int64_t>((*random)() % 13);
  const int gpus = static_cast<int>(spec.gpus.size());
  if (gpus > 0 && (*random)() % 2) {
    spec.groups = std::make_shared<const LinkedGroups>(testing::RandomLinks(gpus, (*random)() % 3));
  }
  spec.pool = (*random)() % 2 ? "x" : "y";
  return spec;
}

Demand RandomDemand(Cluster* cluster, std::mt19937* random) {
  const auto gpu_demand = [&] {
    GpuDemand gpu_demand{.count =
                             1 + static_cast<int>((*random)() % ((*random)() % 3 == 0 ? 9 : 2))};
    gpu_demand.milli = (*random)() % 2 ? kWholeGpu : MilliGpu((*random)() % 1000);
    gpu_demand.bytes = GiB((*random)() % 3 == 0 ? (*random)() % 20 : 0);
    if ((*random)() % 10 == 0) gpu_demand.kind = *cluster->KindOf("1g.5gb");
    return gpu_demand;
  };
  Demand demand{.cpu_milli = static_cast<int64_t>((*random)() % 9000), .memory = GiB(1)};
  const size_t gpu_demands = (*random)() % 6 == 0 ? 2 + (*random)() % 2 : (*random)() % 6 != 0;
  for (size_t i = 0; i < gpu_demands; ++i) demand.gpu_demands.push_back(gpu_demand());
  if ((*random)() % 5 == 0) demand.models.set(*cluster->ModelOf("T4"));
  if ((*random)() % 20 == 0) demand.models.set(*cluster->ModelOf("none has it"));
  if ((*random)() % 5 == 0) {
    std::set<GpuId> named;
    for (int i = 0; i < 12; ++i) {
      const NodeView node = cluster->node((*random)() % cluster->size());
      if (!node.gpus.empty()) named.insert(node.gpus[(*random)() % node.gpus.size()].id);
    }
    demand.gpu_filter.assign(named.begin(), named.end());
    demand.gpu_filter_excludes = !named.empty() && (*random)() % 2;
  }
  if ((*random)() % 30 == 0) demand.memory = GiB(1 << 20);  // larger than the cluster
  return demand;
}

// Recounts what the pods of a node hold, independently of Cluster.
void ExpectNothingOversold(const Cluster& cluster, NodeId node) {
  const NodeSpec spec = cluster.spec(node);
  int64_t cpu = 0, memory = 0;
  std::vector<int64_t> milli(spec.gpus.size()), bytes(spec.gpus.size());
  std::vector<int> pods(spec.gpus.size()), whole(spec.gpus.size());
  for (const PodId id : cluster.pods_of(node)) {
    const PlacedPod& pod = *cluster.Find(id);
    const Demand& demand = cluster.demand(pod.shape);
    cpu += demand.cpu_milli;
    memory += demand.memory.count();
    for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
      for (uint64_t left = pod.pick.masks[n]; left != 0; left &= left - 1) {
        const size_t i = std::countr_zero(left);
        milli[i] += demand.gpu_demands[n].milli.count();
        bytes[i] += demand.gpu_demands[n].bytes.count();
        ++pods[i];
        whole[i] += demand.gpu_demands[n].whole();
        ASSERT_EQ(cluster.node(node).gpus[i].kind, demand.gpu_demands[n].kind);
        ASSERT_TRUE(demand.AllowsModel(cluster.node(node).gpus[i].model));
        ASSERT_TRUE(demand.AllowsGpu(cluster.node(node).gpus[i].id));
      }
    }
  }
  ASSERT_LE(cpu, spec.cpu_milli);
  ASSERT_LE(memory, spec.memory.count());
  for (size_t i = 0; i < spec.gpus.size(); ++i) {
    ASSERT_LE(milli[i], 1000);
    ASSERT_LE(bytes[i], spec.gpus[i].memory.count());
    ASSERT_TRUE(whole[i] == 0 || pods[i] == 1) << "a whole GPU excludes all other pods";
  }
}

// A cluster with a policy, to which random events happen.
class World {
 public:
  World(std::string_view policy, unsigned seed) : random_(seed) {
    quota_.SetConfig(
        *ParseQuota(fmt::format(R"({{"limited":{{"quota":{{"T4":{}}}}}}})", kQuotaGpus)));
    policy_ = *MakePolicy(policy, cluster, {.seed = seed});
    uncalled_ = *MakePolicy(policy, cluster, {.seed = seed});
    for (int i = 0; i < kNodes; ++i) AddNode();
  }

  void Step() {
    const int event = static_cast<int>(random_() % 40);
    if (event == 0) AddNode();
    if (event == 1) RemoveNode();
    if (event >= 2 && event < 7) UpdateNode();
    if (event >= 7 && event < 20) Leave();
    if (event >= 20) Arrive();
  }

  // Checks all properties of the answers for one shape.
  void CheckAnswers(ShapeId shape) {
    const Demand& demand = cluster.demand(shape);
    const auto decision = policy_->Choose(shape);
    const auto scores = policy_->Scores(shape);
    const std::vector<float> kept(scores.begin(), scores.end());
    bool any = false;
    for (NodeId node = 0; node < cluster.size(); ++node) {
      const bool fits = Fits(cluster.node(node), demand);
      any |= fits;
      ASSERT_EQ(kept[node] != kUnfit, fits) << "node " << node;
      const auto pick = policy_->PickOn(shape, node);
      ASSERT_EQ(pick.has_value(), fits) << "node " << node;
      if (pick) {
        ASSERT_TRUE(CheckPick(cluster.node(node), demand, *pick).ok());
      }
    }
    ASSERT_EQ(decision.has_value(), any) << "the policy rejects a demand that fits";
    if (!decision) return;
    const auto again = policy_->Choose(shape);
    ASSERT_EQ(again->node, decision->node);
    ASSERT_EQ(again->pick, decision->pick);
    const auto before = testing::SnapshotOf(cluster);
    const auto pod = cluster.Place(shape, decision->node, decision->pick);
    ASSERT_TRUE(pod.ok()) << pod.status().ToString();
    ASSERT_TRUE(cluster.Remove(*pod).ok());
    ASSERT_EQ(testing::SnapshotOf(cluster), before);
  }

  void CheckTerms(ShapeId shape) {
    const auto scores = policy_->Scores(shape);
    const std::vector<float> kept(scores.begin(), scores.end());
    for (NodeId node = 0; node < cluster.size(); ++node) {
      const std::vector<ScoreTerm> terms = policy_->Explain(shape, node);
      ASSERT_EQ(terms.empty(), kept[node] == kUnfit) << "node " << node;
      double sum = 0, size = 0;
      for (const auto& [term, value] : terms) {
        ASSERT_FALSE(term.empty());
        sum += value;
        size += std::abs(value);
      }
      if (terms.empty()) continue;
      ASSERT_NEAR(sum, kept[node], 1e-6 * size) << "node " << node;
    }
  }

  // Checks that a demand for several GPUs gets GPUs with NVLinks between all pairs if any node has
  // such GPUs free.
  void CheckAllPairsLinked(ShapeId shape) {
    const Demand& demand = cluster.demand(shape);
    const auto decision = policy_->Choose(shape);
    if (!decision) return;
    bool any = false;
    for (NodeId node = 0; node < cluster.size(); ++node) {
      const NodeView view = cluster.node(node);
      any |= Fits(view, demand) && GetsAllPairsLinked(view, demand);
    }
    const NodeView chosen = cluster.node(decision->node);
    ASSERT_EQ(GetsAllPairsLinked(chosen, demand), any);
    for (size_t n = 0; any && n < demand.gpu_demands.size(); ++n) {
      if (!demand.gpu_demands[n].whole() || demand.gpu_demands[n].count < 2) continue;
      if (demand.gpu_demands[n].kind != kNoMigProfile) continue;
      ASSERT_TRUE(chosen->groups->AllPairsLinked(decision->pick.masks[n]));
      ++linked_groups;
    }
  }

  // Compares with a policy that has received all arrivals and departures but has made no decision:
  // both must answer alike.
  void CheckAgainstUncalled(ShapeId shape) {
    const auto scores = policy_->Scores(shape);
    const std::vector<float> kept(scores.begin(), scores.end());
    const auto fresh = uncalled_->Scores(shape);
    ASSERT_EQ(kept, std::vector<float>(fresh.begin(), fresh.end()));
    const auto a = policy_->Choose(shape), b = uncalled_->Choose(shape);
    ASSERT_EQ(a.has_value(), b.has_value());
    if (!a) return;
    ASSERT_EQ(a->node, b->node);
    ASSERT_EQ(a->pick, b->pick);
  }

  void CheckNothingOversold() {
    for (NodeId node = 0; node < cluster.size(); ++node) {
      if (cluster.node(node)->present) ExpectNothingOversold(cluster, node);
    }
    ASSERT_LE(quota_.Used("limited", "T4").count(), kQuotaGpus * 1000);
  }

  void LeaveAll() {
    while (!pods_.empty()) Leave();
    ASSERT_EQ(cluster.pod_count(), 0u);
    ASSERT_EQ(cluster.free_milli(), cluster.total_milli());
    for (const char* model : {"T4", "A100", "V100"}) {
      ASSERT_EQ(quota_.Used("limited", model), MilliGpu(0));
    }
  }

  ShapeId RandomShape() { return *cluster.Intern(RandomDemand(&cluster, &random_)); }

  Cluster cluster;
  std::vector<std::pair<NodeId, Pick>> decisions;
  int linked_groups = 0;  // groups of GPUs that CheckAllPairsLinked has checked

 private:
  struct Held {
    PodId pod;
    ShapeId shape;
    std::vector<QuotaCharge> charges;
  };

  void AddNode() {
    const NodeSpec spec = RandomNode(fmt::format("n{}", added_++), &random_);
    const auto node = cluster.AddNode(spec);
    ASSERT_TRUE(node.ok()) << node.status().ToString();
    specs_.resize(cluster.size());
    specs_[*node] = spec;
  }

  void RemoveNode() {
    const NodeId node = random_() % cluster.size();
    if (!cluster.node(node)->present) return;
    ASSERT_TRUE(cluster.RemoveNode(node).ok());
    std::erase_if(pods_, [&](const Held& held) {
      if (cluster.Find(held.pod) != nullptr) return false;
      Forget(held);
      return true;
    });
  }

  void UpdateNode() {
    const NodeId node = random_() % cluster.size();
    if (!cluster.node(node)->present) return;
    NodeSpec& spec = specs_[node];
    if (random_() % 4 == 0) spec.schedulable ^= true;
    if (!spec.gpus.empty()) {
      spec.gpus[random_() % spec.gpus.size()].healthy ^= true;
      if (random_() % 3 == 0) {
        std::swap(spec.gpus[0], spec.gpus[random_() % spec.gpus.size()]);
      }
      if (random_() % 6 == 0) {
        spec.gpus.pop_back();
        spec.groups = nullptr;
      }
    }
    ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  }

  void Arrive() {
    const ShapeId shape = RandomShape();
    policy_->OnArrival(shape);
    uncalled_->OnArrival(shape);
    const auto decision = policy_->Choose(shape);
    if (!decision) return;
    decisions.emplace_back(decision->node, decision->pick);
    Held held{.shape = shape};
    held.charges = ChargesOf(random_() % 2 ? "limited" : "free", cluster, decision->node,
                             cluster.demand(shape), decision->pick);
    if (!quota_.Charge(held.charges).ok()) return;
    const auto pod = cluster.Place(shape, decision->node, decision->pick);
    ASSERT_TRUE(pod.ok()) << pod.status().ToString();
    held.pod = *pod;
    pods_.push_back(std::move(held));
  }

  void Leave() {
    if (pods_.empty()) return;
    std::swap(pods_[random_() % pods_.size()], pods_.back());
    ASSERT_TRUE(cluster.Remove(pods_.back().pod).ok());
    Forget(pods_.back());
    pods_.pop_back();
  }

  void Forget(const Held& held) {
    policy_->OnDeparture(held.shape);
    uncalled_->OnDeparture(held.shape);
    ASSERT_TRUE(quota_.Refund(held.charges).ok());
  }

  std::mt19937 random_;
  int added_ = 0;                // counts nodes, for unique names
  std::vector<NodeSpec> specs_;  // by node
  std::vector<Held> pods_;
  Quota quota_;
  std::unique_ptr<Policy> policy_, uncalled_;
};

class PolicyPropertyTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(PolicyPropertyTest, NeverOversellsAndAcceptsExactlyFittingDemands) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    World world(GetParam(), seed);
    for (int step = 0; step < 400 && !HasFatalFailure(); ++step) {
      world.Step();
      world.CheckNothingOversold();
      if (step % 5 == 0) world.CheckAnswers(world.RandomShape());
    }
    world.LeaveAll();
  }
}

TEST_P(PolicyPropertyTest, EqualHistoriesGiveEqualAnswers) {
  World first(GetParam(), 7), second(GetParam(), 7);
  for (int step = 0; step < 600; ++step) first.Step();
  for (int step = 0; step < 600; ++step) second.Step();
  EXPECT_GT(first.decisions.size(), 50u);
  EXPECT_EQ(first.decisions, second.decisions);
}

TEST_P(PolicyPropertyTest, CachedScoresEqualRecomputedScores) {
  World world(GetParam(), 11);
  for (int step = 0; step < 600 && !HasFatalFailure(); ++step) {
    world.Step();
    if (step % 60 == 59) {
      for (int i = 0; i < 10; ++i) world.CheckAgainstUncalled(world.RandomShape());
    }
  }
}

TEST_P(PolicyPropertyTest, TheTermsOfAScoreSumUpToIt) {
  for (unsigned seed = 20; seed < 24; ++seed) {
    World world(GetParam(), seed);
    for (int step = 0; step < 200 && !HasFatalFailure(); ++step) {
      if (step % 5 == 0) world.CheckTerms(world.RandomShape());
      world.Step();
    }
  }
}

TEST(TesseraPropertyTest, PodsOfSeveralGpusGetLinkedGpusIfAvailable) {
  int linked_groups = 0;
  for (unsigned seed = 30; seed < 40 && !::testing::Test::HasFatalFailure(); ++seed) {
    World world("Tessera", seed);
    for (int step = 0; step < 300 && !::testing::Test::HasFatalFailure(); ++step) {
      world.CheckAllPairsLinked(world.RandomShape());
      world.Step();
    }
    linked_groups += world.linked_groups;
  }
  EXPECT_GT(linked_groups, 100);
}

// The same nodes and pods in another order, in a cluster that numbers its models differently.
class Mirror {
 public:
  explicit Mirror(const Cluster& from) {
    for (NodeId node = from.size(); node-- > 0;) {
      if (from.node(node)->present) (void)*cluster.AddNode(from.spec(node));
    }
    for (NodeId node = 0; node < from.size(); ++node) {
      if (!from.node(node)->present) continue;
      const NodeId mirror_node = cluster.FindNode(from.spec(node).name);
      for (const PodId id : from.pods_of(node)) {
        const PlacedPod& pod = *from.Find(id);
        const ShapeId shape = *cluster.Intern(Translate(from, from.demand(pod.shape)));
        EXPECT_TRUE(cluster.Adopt(shape, mirror_node, pod.pick).ok());
      }
    }
  }

  Demand Translate(const Cluster& from, Demand demand) {
    for (GpuDemand& gpu_demand : demand.gpu_demands)
      gpu_demand.kind = *cluster.KindOf(from.NameOfKind(gpu_demand.kind));
    ModelSet models;
    for (size_t model = 0; model < from.model_count(); ++model) {
      if (demand.models.test(model)) models.set(*cluster.ModelOf(from.NameOf(model)));
    }
    demand.models = models;
    demand.gpu_filter = TranslateGpus(from, demand.gpu_filter);
    demand.gpu_filter_excludes &= !demand.gpu_filter.empty();
    return demand;
  }

  std::vector<GpuId> TranslateGpus(const Cluster& from, const std::vector<GpuId>& named) const {
    std::set<GpuId> gpus;
    for (NodeId node = 0; node < from.size(); ++node) {
      const NodeView view = from.node(node);
      for (size_t i = 0; view->present && i < view.gpus.size(); ++i) {
        if (!std::ranges::binary_search(named, view.gpus[i].id)) continue;
        gpus.insert(cluster.FindGpus(from.spec(node).gpus[i].uuid).at(0));
      }
    }
    if (gpus.empty() && !named.empty()) gpus.insert(kUnknownGpu);
    return {gpus.begin(), gpus.end()};
  }

  Cluster cluster;
};

TEST_P(PolicyPropertyTest, ScoresDoNotDependOnTheOrderOfNodes) {
  if (GetParam() == "Random") GTEST_SKIP() << "Random draws by the node's number";
  World world(GetParam(), 13);
  for (int step = 0; step < 300; ++step) world.Step();
  Mirror mirror(world.cluster);
  const auto policy = *MakePolicy(GetParam(), world.cluster, {});
  const auto mirror_policy = *MakePolicy(GetParam(), mirror.cluster, {});
  for (int i = 0; i < 40; ++i) {
    const ShapeId shape = world.RandomShape();
    const Demand mirrored = mirror.Translate(world.cluster, world.cluster.demand(shape));
    const auto scores = policy->Scores(shape);
    const auto others = mirror_policy->Scores(*mirror.cluster.Intern(mirrored));
    for (NodeId node = 0; node < world.cluster.size(); ++node) {
      if (!world.cluster.node(node)->present) continue;
      const std::string& name = world.cluster.name(node);
      ASSERT_EQ(scores[node], others[mirror.cluster.FindNode(name)]) << name;
    }
  }
}

std::vector<std::string_view> Names() {
  std::vector<std::string_view> names;
  for (const PolicyInfo& info : Policies()) names.push_back(info.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, PolicyPropertyTest, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera::placement
