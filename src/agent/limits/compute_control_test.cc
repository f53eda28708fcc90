// SPDX-License-Identifier: Apache-2.0
// Tests the control of compute with real files. The test writes what limiters would write.
#include "src/agent/limits/compute_control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <optional>
#include <thread>

#include "src/base/clock.h"

namespace tessera::agent {
namespace {

constexpr char kOneGpu[] = "GPU-00000000-0000-0000-0000-000000000001";
constexpr int64_t kMs = 1'000'000;

int64_t NowNs() { return SystemClock().Now().time_since_epoch().count(); }

// A container with one process.
class Container {
 public:
  Container(const std::string& dir, const std::string& name, double share) : name_(name) {
    limits_ = std::make_shared<limiter::LimitsFile>();
    EXPECT_EQ(limits_->Open((dir + "/" + name + "-limits").c_str()), 0);
    EXPECT_EQ(limits_->SetCompute(kOneGpu, share, share), 0);
    usage_ = std::make_shared<const Fd>(
        ::open((dir + "/" + name + "-usage").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(usage_->get(), sizeof(limiter::Usage)), 0);
    void* memory = ::mmap(nullptr, sizeof(limiter::Usage), PROT_READ | PROT_WRITE, MAP_SHARED,
                          usage_->get(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    region_ = static_cast<limiter::Usage*>(memory);
    member_ = {.pod_uid = Uid(name),
               .container = "main",
               .uuid = kOneGpu,
               .limits = limits_,
               .usage = usage_};
    member_.share.request = member_.share.limit = share;
  }
  ~Container() { ::munmap(region_, sizeof(limiter::Usage)); }

  const ComputeControl::Member& member() const { return member_; }
  const limiter::ComputeLimit& limit() const { return limits_->limits().compute[0]; }
  // GPU time in nanoseconds that the process may still charge.
  int64_t room() const { return limit().pool.load() - region_->compute[0].charge.charged.load(); }
  // Charges more GPU time to the process, which continues to work.
  void Work(int64_t ns) {
    limiter::ComputeUsage& usage = region_->compute[0];
    usage.charge.slots = 1;
    usage.charge.charged += ns;
    usage.slots[0].metered += ns;
    usage.slots[0].in_flight = kMs;
    usage.slots[0].last_launch = usage.slots[0].last_written = NowNs();
  }
  // Adds to the time that its threads have waited.
  void Wait(int64_t ns) { region_->compute[0].charge.waited += ns; }
  void Truncate() const { EXPECT_EQ(::ftruncate(usage_->get(), 100), 0); }

 private:
  const std::string name_;
  std::shared_ptr<limiter::LimitsFile> limits_;
  std::shared_ptr<const Fd> usage_;
  limiter::Usage* region_ = nullptr;
  ComputeControl::Member member_;
};

template <typename Condition>
bool Soon(const Condition& condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class ComputeControlTest : public ::testing::Test {
 protected:
  TempDir dir_;
};

TEST_F(ComputeControlTest, AMemberThatWorksGetsALeaseAndRoom) {
  Container container(dir_.path(), "a", 0.3);
  ComputeControl control;
  EXPECT_EQ(container.limit().lease_end.load(), 0)
      << "before the first Update the rate of its grant holds";
  control.Update({container.member()});
  container.Work(kMs);
  EXPECT_TRUE(Soon([&] { return container.limit().lease_end.load() > NowNs(); }));
  EXPECT_TRUE(Soon([&] { return container.room() > 0; }));
  EXPECT_NEAR(container.limit().cap.load(), 0.3 * limiter::kOne, 2);
}

TEST_F(ComputeControlTest, ReturnsTheUseSinceTheLastCall) {
  Container container(dir_.path(), "a", 0.3);
  ComputeControl control;
  EXPECT_EQ(control.TakeUse(Uid("a"), "main", kOneGpu), std::nullopt);
  control.Update({container.member()});
  container.Work(kMs);
  EXPECT_TRUE(Soon([&] { return control.TakeUse(Uid("a"), "main", kOneGpu).has_value(); }));
  // On a busy machine a thread may pause and make a reading late, so the test tries up to 20 times.
  std::optional<ComputeUse> use;
  double used = 0, waiting = 0;
  int rounds = 0;
  const auto is_near = [&] {
    return use && std::abs(use->used - used) < 0.1 && std::abs(use->waiting - waiting) < 0.25 &&
           use->waited_for == rounds * std::chrono::milliseconds(50);
  };
  while (rounds < 20 && !is_near()) {
    (void)control.TakeUse(Uid("a"), "main", kOneGpu);
    const int64_t start = NowNs();
    container.Work(20 * kMs);
    container.Wait(50 * kMs);
    ++rounds;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    use = control.TakeUse(Uid("a"), "main", kOneGpu);
    const double span = static_cast<double>(NowNs() - start);
    used = 20.0 * kMs / span;
    waiting = 50.0 * kMs / span;
  }
  ASSERT_TRUE(use.has_value());
  EXPECT_NEAR(use->used, used, 0.1);
  EXPECT_NEAR(use->waiting, waiting, 0.25);
  EXPECT_EQ(use->waited_for, rounds * std::chrono::milliseconds(50));
}

TEST_F(ComputeControlTest, AContainerWithoutAShareIsLimitedOnlyBesideContainersWithOne) {
  Container share(dir_.path(), "share", 0.7), memory(dir_.path(), "memory", 0);
  ComputeControl control;
  control.Update({memory.member()});
  memory.Work(kMs);
  control.Update({share.member(), memory.member()});
  EXPECT_TRUE(Soon([&] { return memory.limit().lease_end.load() > NowNs(); }));
  EXPECT_NE(memory.limit().epoch.load(), 0u);
  EXPECT_EQ(memory.limit().cap.load(), 0u);
  EXPECT_NEAR(memory.limit().floor.load(), 0.3 * limiter::kOne, 2);
  control.Update({memory.member()});
  EXPECT_TRUE(Soon([&] { return memory.limit().epoch.load() == 0; }));
  EXPECT_EQ(memory.limit().floor.load(), 0u);
}

TEST_F(ComputeControlTest, AStartingAgentRemovesALimitThatNoLongerApplies) {
  Container memory(dir_.path(), "memory", 0);
  memory.member().limits->Write(0, limiter::Arbiter::Allowance{.epoch = 1, .floor = 1});
  ComputeControl control;
  control.Update({memory.member()});
  EXPECT_TRUE(Soon([&] { return memory.limit().epoch.load() == 0; }));
}

// The limiter measures 0.6 of the GPU, of which the driver confirms half.
TEST_F(ComputeControlTest, UseIsCorrectedByTheDriversUtilization) {
  Container container(dir_.path(), "a", 0.9);
  ComputeControl control;
  ComputeControl::Member member = container.member();
  control.Update({member});
  member.utilization = 0.3;
  int64_t last = NowNs();
  double shown = 0;
  for (int step = 0; step < 60 && (shown < 0.2 || shown > 0.4); ++step) {
    // A step has many ticks, because its last reading may be one tick old.
    for (int i = 0; i < 30; ++i) {
      const int64_t now = NowNs();
      container.Work((now - std::exchange(last, now)) * 6 / 10);
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
    }
    control.Update({member});
    if (const auto use = control.TakeUse(Uid("a"), "main", kOneGpu)) shown = use->used;
  }
  EXPECT_NEAR(shown, 0.3, 0.1);
}

TEST_F(ComputeControlTest, AStartingAgentKeepsTheCorrectionOfThePreviousAgent) {
  Container container(dir_.path(), "a", 0.3);
  container.member().limits->Write(0, limiter::Arbiter::Allowance{.bias = limiter::kOne * 5 / 4});
  container.Work(kMs);
  ComputeControl control;
  control.Update({container.member()});
  EXPECT_TRUE(Soon([&] { return container.limit().lease_end.load() > NowNs(); }));
  EXPECT_EQ(container.limit().bias.load(), limiter::kOne * 5 / 4);
}

TEST_F(ComputeControlTest, ATruncatedUsageFileDoesNotStopTheLeasesOfOtherContainers) {
  Container bad(dir_.path(), "bad", 0.5), good(dir_.path(), "good", 0.5);
  ComputeControl control;
  bad.Truncate();
  control.Update({bad.member(), good.member()});
  good.Work(kMs);
  EXPECT_TRUE(Soon([&] { return good.limit().lease_end.load() > NowNs(); }));
}

// The agent reads the file in place, where the container may cut it at any time.
TEST_F(ComputeControlTest, ATruncatedUsageFileDoesNotAffectOtherContainers) {
  Container bad(dir_.path(), "bad", 0.5), good(dir_.path(), "good", 0.5);
  ComputeControl control;
  control.Update({bad.member(), good.member()});
  bad.Work(kMs);
  EXPECT_TRUE(Soon([&] { return bad.limit().lease_end.load() > NowNs(); }));
  bad.Truncate();
  for (int i = 0; i < 20; ++i) {
    good.Work(kMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  }
  EXPECT_TRUE(Soon([&] { return good.room() > 0 && good.limit().lease_end.load() > NowNs(); }));
}

TEST_F(ComputeControlTest, LeasesEndAfterDestruction) {
  Container container(dir_.path(), "a", 0.3);
  auto control = std::make_unique<ComputeControl>();
  control->Update({container.member()});
  container.Work(kMs);
  EXPECT_TRUE(Soon([&] { return container.limit().lease_end.load() > NowNs(); }));
  control.reset();
  EXPECT_LE(container.limit().lease_end.load(), NowNs() + 60 * kMs);
  EXPECT_NEAR(container.limit().floor.load(), 0.3 * limiter::kOne, 2);
}

}  // namespace
}  // namespace tessera::agent
