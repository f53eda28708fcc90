// SPDX-License-Identifier: Apache-2.0
#include "src/kube/leader_election.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "src/base/random.h"

namespace tessera::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The server's side of one lease.
struct Store {
  std::optional<LeaseObject> lease;
  int64_t version = 0;

  Result<LeaseObject> Write(const LeaseObject& next, bool create) {
    if (create && lease) return Error(Code::kAlreadyExists, "the lease exists");
    if (!create && !lease) return Error(Code::kNotFound, "the lease does not exist");
    if (!create && lease->meta.resource_version != next.meta.resource_version) {
      return Error(Code::kAborted, "another version");
    }
    lease = next;
    lease->meta.resource_version = std::to_string(++version);
    return *lease;
  }
};

// A replica's network: requests and responses are delayed and lost independently.
class Network final : public LeaseApi {
 public:
  Network(FakeTaskRunner& runner, Store& store, Random& random)
      : runner_(runner), store_(store), random_(random) {}

  void Get(Done done) override {
    Send(
        [this]() -> Result<LeaseObject> {
          if (store_.lease) return *store_.lease;
          return Error(Code::kNotFound, "the lease does not exist");
        },
        std::move(done));
  }
  void Create(const LeaseObject& lease, Done done) override {
    Send([this, lease] { return store_.Write(lease, true); }, std::move(done));
  }
  void Update(const LeaseObject& lease, Done done) override {
    ++updates;
    Send([this, lease] { return store_.Write(lease, false); }, std::move(done));
  }
  // A sent request may still arrive.
  void Cancel() override { ++call_; }

  int lost_percent = 0;
  Duration slowest = milliseconds(1);
  bool down = false;
  int updates = 0;

 private:
  Duration RandomDelay() {
    return Duration(random_.Below(static_cast<uint64_t>(slowest.count())) + 1);
  }
  bool IsLost() { return down || random_.Below(100) < static_cast<uint64_t>(lost_percent); }

  void Send(std::function<Result<LeaseObject>()> act, Done done) {
    const int call = ++call_;
    if (IsLost()) return;
    runner_.PostDelayed(RandomDelay(), [this, act = std::move(act), done = std::move(done), call] {
      const auto answer = act();
      if (IsLost()) return;
      runner_.PostDelayed(RandomDelay(), [this, answer, done, call] {
        if (call == call_) done(answer);
      });
    });
  }

  FakeTaskRunner& runner_;
  Store& store_;
  Random& random_;
  int call_ = 0;
};

class Replica : public LeaderElector::Delegate {
 public:
  Replica(FakeTaskRunner& runner, Store& store, Random& random, const std::string& name)
      : network(runner, store, random), name_(name), runner_(runner), random_(random) {
    Start();
  }
  void Start() {
    elector = std::make_unique<LeaderElector>(runner_, network, ElectionOptions{.identity = name_},
                                              *this, random_.Next());
  }
  void Crash() {
    elector.reset();
    network.Cancel();
    leads = false;
  }
  void OnStartedLeading() override {
    EXPECT_FALSE(leads);
    leads = true;
    log += "+";
  }
  void OnStoppedLeading(const Status&) override {
    EXPECT_TRUE(leads);
    leads = false;
    log += "-";
  }
  void OnLeader(const std::string& identity) override { leader = identity; }
  void OnError(const Status&) override { ++errors; }

  Network network;
  std::unique_ptr<LeaderElector> elector;
  bool leads = false;
  std::string leader;
  std::string log;
  int errors = 0;

 private:
  std::string name_;
  FakeTaskRunner& runner_;
  Random& random_;
};

class LeaderElectionTest : public ::testing::Test {
 protected:
  Replica& Add(const std::string& name) {
    return *replicas_.emplace_back(std::make_unique<Replica>(runner_, store_, random_, name));
  }
  int Leaders() const {
    int count = 0;
    for (const auto& r : replicas_) count += r->leads ? 1 : 0;
    return count;
  }

  FakeTaskRunner runner_;
  Store store_;
  Random random_{1};
  std::vector<std::unique_ptr<Replica>> replicas_;
};

TEST_F(LeaderElectionTest, TheFirstReplicaLeadsAndRenewsTheLease) {
  Replica& a = Add("a");
  runner_.AdvanceTimeAndRun(seconds(1));
  Replica& b = Add("b");
  runner_.AdvanceTimeAndRun(seconds(60));
  EXPECT_EQ(a.log, "+");
  EXPECT_EQ(b.log, "");
  EXPECT_EQ(b.leader, "a");
  EXPECT_TRUE(a.elector->leading());
  EXPECT_FALSE(b.elector->leading());
  EXPECT_EQ(store_.lease->transitions, 0);
  EXPECT_EQ(store_.lease->duration, seconds(15));
  EXPECT_LT(store_.lease->acquire_time, store_.lease->renew_time);
  // One write per period, without a read before it.
  EXPECT_NEAR(a.network.updates, 30, 2);
}

TEST_F(LeaderElectionTest, AnotherReplicaLeadsAfterTheLeaderCrashes) {
  Replica& a = Add("a");
  runner_.AdvanceTimeAndRun(seconds(5));
  Replica& b = Add("b");
  runner_.AdvanceTimeAndRun(seconds(5));
  a.Crash();
  runner_.AdvanceTimeAndRun(seconds(12));
  EXPECT_EQ(b.log, "");
  runner_.AdvanceTimeAndRun(seconds(8));
  EXPECT_EQ(b.log, "+");
  EXPECT_EQ(store_.lease->transitions, 1);
}

TEST_F(LeaderElectionTest, ALeaderThatLosesItsServerStopsBeforeAnotherStarts) {
  Replica& a = Add("a");
  runner_.AdvanceTimeAndRun(seconds(5));
  Replica& b = Add("b");
  runner_.AdvanceTimeAndRun(seconds(5));
  a.network.down = true;
  bool stopped_first = false;
  for (int i = 0; i < 300; ++i) {
    runner_.AdvanceTimeAndRun(milliseconds(100));
    EXPECT_LE(Leaders(), 1);
    stopped_first = stopped_first || (!a.leads && !b.leads);
  }
  EXPECT_TRUE(stopped_first);
  EXPECT_EQ(a.log, "+-");
  EXPECT_EQ(b.log, "+");
  a.network.down = false;
  runner_.AdvanceTimeAndRun(seconds(30));
  EXPECT_EQ(a.leader, "b");
  EXPECT_EQ(a.log, "+-");
}

TEST_F(LeaderElectionTest, AReleasedLeaseIsAcquiredAtOnce) {
  Replica& a = Add("a");
  runner_.AdvanceTimeAndRun(seconds(5));
  Replica& b = Add("b");
  runner_.AdvanceTimeAndRun(seconds(5));
  bool released = false;
  a.elector->Release([&] { released = true; });
  EXPECT_EQ(a.log, "+-");
  runner_.AdvanceTimeAndRun(seconds(4));
  EXPECT_TRUE(released);
  EXPECT_EQ(b.log, "+");
  runner_.AdvanceTimeAndRun(seconds(60));
  EXPECT_EQ(a.log, "+-");
  bool again = false;
  a.elector->Release([&] { again = true; });
  runner_.AdvanceTimeAndRun(seconds(1));
  EXPECT_TRUE(again);
}

TEST_F(LeaderElectionTest, ALeaderKeepsLeadingAfterAnotherClientsWrite) {
  Replica& a = Add("a");
  runner_.AdvanceTimeAndRun(seconds(5));
  // kubectl label lease ...: another version, the same holder.
  store_.lease->meta.resource_version = std::to_string(++store_.version);
  runner_.AdvanceTimeAndRun(seconds(30));
  EXPECT_EQ(a.log, "+");
  EXPECT_EQ(a.errors, 1);
}

TEST_F(LeaderElectionTest, ALeaderStopsWhenAnotherHolderIsWritten) {
  Replica& a = Add("a");
  runner_.AdvanceTimeAndRun(seconds(5));
  store_.lease->holder = "b";
  store_.lease->meta.resource_version = std::to_string(++store_.version);
  runner_.AdvanceTimeAndRun(seconds(5));
  EXPECT_EQ(a.log, "+-");
}

// Under loss, delay and crashes there are never two leaders, by leading() or by callbacks; once the
// network works again, there is one leader.
TEST_F(LeaderElectionTest, TwoReplicasNeverLeadAtTheSameTime) {
  int terms = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    replicas_.clear();
    runner_.AdvanceTimeAndRun(std::chrono::minutes(5));  // pending messages arrive
    random_ = Random(seed);
    store_ = {};
    for (const char* name : {"a", "b", "c"}) Add(name);
    for (int step = 0; step < 3000; ++step) {
      Replica& replica = *replicas_[random_.Below(3)];
      if (random_.Below(100) == 0) replica.network.down = !replica.network.down;
      if (random_.Below(100) == 0)
        replica.network.lost_percent = static_cast<int>(random_.Below(60));
      if (random_.Below(100) == 0) replica.network.slowest = milliseconds(1 + random_.Below(20000));
      if (random_.Below(400) == 0) {
        replica.Crash();
        replica.Start();
      }
      runner_.AdvanceTimeAndRun(milliseconds(random_.Below(500)));
      ASSERT_LE(Leaders(), 1) << "seed " << seed << " step " << step;
      for (const auto& r : replicas_) ASSERT_EQ(r->leads, r->elector->leading());
    }
    for (const auto& r : replicas_) {
      r->network.down = false;
      r->network.lost_percent = 0;
      r->network.slowest = milliseconds(1);
      terms += static_cast<int>(r->log.size());
    }
    runner_.AdvanceTimeAndRun(std::chrono::minutes(2));
    ASSERT_EQ(Leaders(), 1) << "seed " << seed;
  }
  EXPECT_GT(terms, 100);
}

TEST(ElectionOptionsTest, RejectsTimesThatAllowTwoLeaders) {
  EXPECT_TRUE(CheckElectionOptions({.identity = "a"}).ok());
  EXPECT_FALSE(CheckElectionOptions({}).ok());
  EXPECT_FALSE(CheckElectionOptions({.identity = "a", .renew_deadline = seconds(15)}).ok());
  EXPECT_FALSE(CheckElectionOptions({.identity = "a", .retry_period = seconds(5)}).ok());
  EXPECT_FALSE(CheckElectionOptions({.identity = "a", .retry_period = seconds(0)}).ok());
}

}  // namespace
}  // namespace tessera::kube
