// SPDX-License-Identifier: Apache-2.0
// Runs whole upgrades of random fleets in virtual time, with nodes that fail, hang and vanish,
// administrators who cordon, lost API calls, and a caller that acts on outdated objects.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/operator/driver/upgrade.h"

#include "api/names.h"

namespace tessera::driver {
namespace {

using namespace std::chrono_literals;
using Kind = UpgradeAction::Kind;

constexpr Duration kTick = 10s;

// How a node reacts to the new driver.
enum class Fate { kGood, kSlow, kCrashes, kHangs, kFailsValidation, kPodStays, kVanishes };

struct SimPod {
  UpgradePod pod;
  std::optional<WallTime> gone_at;
  bool never_goes = false;  // a finalizer
};

struct SimNode {
  UpgradeNode node;  // without pods
  std::vector<SimPod> pods;
  Fate fate = Fate::kGood;
  uint64_t version = 0;  // of the Node object
  bool cordoned_by_admin = false;
  WallTime driver_created{};
  std::optional<WallTime> driver_returns;  // after its deletion
};

class Fleet {
 public:
  Fleet(uint64_t seed, const UpgradePolicy& policy) : random_(seed), policy_(policy) {}

  void AddNode(Fate fate) {
    SimNode sim;
    sim.node.name = fmt::format("n{}", nodes_.size());
    sim.node.wanted_revision = "new";
    sim.node.driver =
        DriverPod{.ns = "gpu", .name = "old-driver", .revision = "old", .ready = true};
    sim.node.validated = true;
    sim.node.labels[std::string(names::kLabelUpgradeState)] = "upgrade-done";
    sim.node.annotations[std::string(names::kAnnotationDriverGood)] = "old";
    sim.fate = fate;
    const int pods = RandomBelow(4);
    for (int i = 0; i < pods; ++i) {
      SimPod pod;
      pod.pod = {.ns = "d",
                 .name = fmt::format("{}-{}", sim.node.name, i),
                 .uses_gpu = RandomBelow(2) == 0,
                 .controlled = true};
      pod.never_goes = fate == Fate::kPodStays && i == 0;
      if (pod.never_goes) pod.pod.uses_gpu = true;
      sim.pods.push_back(pod);
    }
    if (fate == Fate::kPodStays && pods == 0) sim.fate = Fate::kGood;
    nodes_.push_back(std::move(sim));
  }
  void CordonByAdmin(size_t i) {
    SimNode& sim = nodes_[i];
    // A cordon of a node that is cordoned already leaves no trace.
    if (sim.node.unschedulable) return;
    sim.node.unschedulable = sim.cordoned_by_admin = true;
    ++sim.version;
  }

  void RunFor(Duration time) {
    for (const WallTime end = now_ + time; now_ < end; now_ += kTick) {
      Advance();
      StepOnce();
      if (::testing::Test::HasFailure()) return;
    }
  }

  // Runs until nothing has happened for a while and no deadline is pending.
  void RunUntilQuiet() {
    int quiet = 0;
    for (const WallTime end = now_ + 48h; now_ < end && quiet < 30;) {
      RunFor(kTick);
      quiet = last_actions_ == 0 && !deadline_runs_ ? quiet + 1 : 0;
      if (::testing::Test::HasFailure()) return;
    }
  }

  std::vector<SimNode>& nodes() { return nodes_; }
  int last_actions() const { return last_actions_; }
  WallTime now() const { return now_; }
  int RandomBelow(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }

  // Actions get lost, callers are killed, and administrators cordon nodes.
  bool lossy = true;
  int most_in_progress = 0;

 private:
  void Advance();
  void AdvanceDriver(SimNode* sim);
  void StepOnce();
  void Apply(const UpgradeAction& action, uint64_t version);
  void ApplyToPod(const UpgradeAction& action, SimNode* sim);
  SimNode& Find(const std::string& name) {
    return *std::ranges::find_if(nodes_, [&](const SimNode& s) { return s.node.name == name; });
  }

  std::mt19937_64 random_;
  const UpgradePolicy policy_;
  std::vector<SimNode> nodes_;
  WallTime now_{std::chrono::seconds(1'800'000'000)};
  int last_actions_ = 0;
  bool deadline_runs_ = false;
};

void Fleet::AdvanceDriver(SimNode* sim) {
  UpgradeNode& node = sim->node;
  if (!node.driver) {
    if (!sim->driver_returns || now_ < *sim->driver_returns) return;
    const auto pin = node.labels.find(names::kLabelDriverRevision);
    const std::string revision = pin != node.labels.end() ? pin->second : node.wanted_revision;
    node.driver =
        DriverPod{.ns = "gpu", .name = fmt::format("{}-driver", revision), .revision = revision};
    sim->driver_created = now_;
    return;
  }
  const Duration age = now_ - sim->driver_created;
  const bool is_new = node.driver->revision == "new";
  if (is_new && sim->fate == Fate::kHangs) return;
  if (is_new && sim->fate == Fate::kCrashes) {
    node.driver->restarts = static_cast<int>(age / 20s);
    return;
  }
  const Duration load = is_new && sim->fate == Fate::kSlow ? Duration(10min) : Duration(40s);
  if (!node.driver->ready && age >= load) node.driver->ready = true;
  const bool validates = !is_new || sim->fate != Fate::kFailsValidation;
  if (node.driver->ready && validates && age >= load + 10s) node.validated = true;
}

void Fleet::Advance() {
  for (SimNode& sim : nodes_) {
    AdvanceDriver(&sim);
    std::erase_if(sim.pods, [&](const SimPod& pod) { return pod.gone_at && now_ >= *pod.gone_at; });
    if (sim.fate == Fate::kVanishes && sim.node.unschedulable) sim.node.ready = false;
    if (!sim.node.ready) {
      for (SimPod& pod : sim.pods) pod.gone_at.reset();
      if (sim.node.driver) sim.node.driver->ready = false;
      sim.node.validated = false;
    }
  }
}

void Fleet::StepOnce() {
  std::vector<UpgradeNode> seen;
  std::vector<uint64_t> versions;
  for (const SimNode& sim : nodes_) {
    seen.push_back(sim.node);
    versions.push_back(sim.version);
    for (const SimPod& pod : sim.pods) seen.back().pods.push_back(pod.pod);
  }
  std::ranges::shuffle(seen, random_);
  const UpgradeStep step = NextUpgradeStep(policy_, seen, now_);
  last_actions_ = static_cast<int>(step.actions.size());
  deadline_runs_ = step.next.has_value();
  most_in_progress = std::max(most_in_progress, step.counts.in_progress);
  if (policy_.max_parallel > 0) {
    EXPECT_LE(step.counts.in_progress, policy_.max_parallel);
  }
  EXPECT_LE(step.counts.in_progress, MaxUnavailable(policy_, step.counts.total));
  // An administrator cordons a node between the reading and the writing.
  if (lossy && RandomBelow(200) == 0)
    CordonByAdmin(static_cast<size_t>(RandomBelow(static_cast<int>(nodes_.size()))));
  for (const UpgradeAction& action : step.actions) {
    if (lossy && RandomBelow(4) == 0) continue;  // the action is lost
    const auto i = static_cast<size_t>(&Find(action.node) - nodes_.data());
    Apply(action, versions[i]);
    if (lossy && RandomBelow(20) == 0) return;  // the caller is killed
  }
}

void Fleet::Apply(const UpgradeAction& action, uint64_t version) {
  SimNode& sim = Find(action.node);
  if (!action.pod.empty()) return ApplyToPod(action, &sim);
  if (version != sim.version) return;  // the API server's conflict
  ++sim.version;
  UpgradeNode& node = sim.node;
  for (const auto& [name, value] : action.labels) {
    value ? (void)(node.labels[name] = *value) : (void)node.labels.erase(name);
  }
  for (const auto& [name, value] : action.annotations) {
    value ? (void)(node.annotations[name] = *value) : (void)node.annotations.erase(name);
  }
  if (action.kind == Kind::kCordon) node.unschedulable = true;
  if (action.kind != Kind::kUncordon) return;
  EXPECT_FALSE(sim.cordoned_by_admin)
      << node.name << ": the cordon of an administrator was removed";
  node.unschedulable = false;
}

void Fleet::ApplyToPod(const UpgradeAction& action, SimNode* sim) {
  UpgradeNode& node = sim->node;
  EXPECT_TRUE(node.unschedulable) << node.name << ": " << action.pod
                                  << " is deleted before the cordon";
  if (node.driver && node.driver->name == action.pod) {
    const bool busy =
        std::ranges::any_of(sim->pods, [](const SimPod& p) { return p.pod.uses_gpu; });
    EXPECT_FALSE(busy) << node.name << ": the driver is deleted while pods use GPUs";
    if (!node.ready) return;
    node.driver.reset();
    node.validated = false;
    sim->driver_returns = now_ + 5s;
    return;
  }
  for (SimPod& pod : sim->pods) {
    if (pod.pod.name != action.pod) continue;
    pod.pod.deleting = true;
    if (!pod.never_goes && node.ready)
      pod.gone_at = now_ + std::chrono::seconds(1 + RandomBelow(60));
  }
}

bool IsBad(Fate fate) { return fate != Fate::kGood && fate != Fate::kSlow; }

std::string StateText(const UpgradeNode& node) {
  const auto state = StateOfNode(node);
  return state ? std::string(NameOf(*state)) : "?";
}

TEST(UpgradeFleetPropertyTest, UpgradesGoodNodesBesideFailingOnesAndKeepsForeignCordons) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    UpgradePolicy policy;
    policy.max_parallel = static_cast<int>(random() % 4);
    policy.max_unavailable = random() % 2 == 0 ? "25%" : "3";
    policy.drain = random() % 2 == 0;
    policy.force = random() % 2 == 0;
    Fleet fleet(seed, policy);
    const int count = 4 + static_cast<int>(random() % 12);
    int bad_left = MaxUnavailable(policy, count);
    for (int i = 0; i < count; ++i) {
      Fate fate = static_cast<Fate>(random() % 7);
      if (IsBad(fate) && bad_left-- <= 0) fate = Fate::kGood;
      fleet.AddNode(fate);
    }
    for (int i = 0; i < 2; ++i) fleet.CordonByAdmin(random() % static_cast<size_t>(count));
    fleet.RunFor(2h);
    fleet.lossy = false;
    fleet.RunUntilQuiet();
    if (HasFailure()) return;
    EXPECT_EQ(fleet.last_actions(), 0) << "a finished fleet is still written";
    for (const SimNode& sim : fleet.nodes()) {
      SCOPED_TRACE(fmt::format("{} fate {}", sim.node.name, static_cast<int>(sim.fate)));
      EXPECT_TRUE(!sim.cordoned_by_admin || sim.node.unschedulable);
      if (!sim.node.ready) {
        // An administrator must act: the upgrade has failed, or has never begun.
        EXPECT_TRUE(StateText(sim.node) == "upgrade-failed" ||
                    StateText(sim.node) == "upgrade-required");
        continue;
      }
      EXPECT_EQ(StateText(sim.node), IsBad(sim.fate) ? "upgrade-failed" : "upgrade-done");
      ASSERT_TRUE(sim.node.driver);
      EXPECT_EQ(sim.node.driver->revision, IsBad(sim.fate) ? "old" : "new");
      EXPECT_TRUE(sim.node.driver->ready);
      EXPECT_EQ(sim.node.unschedulable, sim.cordoned_by_admin) << "the operator's cordon remains";
    }
    if (HasFailure()) return;
  }
}

TEST(UpgradeFleetPropertyTest, AFailedCanaryKeepsTheDriverFromAllOthers) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Fleet fleet(seed, {.max_parallel = 0, .max_unavailable = "100%", .canaries = 2});
    fleet.AddNode(Fate::kHangs);
    for (int i = 0; i < 9; ++i) fleet.AddNode(Fate::kGood);
    fleet.lossy = false;
    fleet.RunUntilQuiet();
    EXPECT_LE(fleet.most_in_progress, 2);
    for (size_t i = 2; i < fleet.nodes().size(); ++i)
      EXPECT_EQ(fleet.nodes()[i].node.driver->revision, "old");
    EXPECT_EQ(fleet.nodes()[0].node.driver->revision, "old") << "rolled back";
    EXPECT_FALSE(fleet.nodes()[0].node.unschedulable);
  }
}

TEST(UpgradeFleetPropertyTest, TheNextDriverReachesAlsoNodesThatWereRolledBack) {
  Fleet fleet(1, {.max_parallel = 0, .max_unavailable = "100%"});
  for (int i = 0; i < 6; ++i) fleet.AddNode(i < 3 ? Fate::kCrashes : Fate::kGood);
  fleet.RunFor(2h);
  fleet.lossy = false;
  fleet.RunUntilQuiet();
  for (SimNode& sim : fleet.nodes()) sim.node.wanted_revision = "newer";
  fleet.RunUntilQuiet();
  for (const SimNode& sim : fleet.nodes()) {
    EXPECT_EQ(sim.node.driver->revision, "newer");
    EXPECT_EQ(StateText(sim.node), "upgrade-done");
  }
}

}  // namespace
}  // namespace tessera::driver
