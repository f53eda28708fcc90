// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/container_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "src/agent/exporter/testing/samples.h"

namespace tessera::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr MilliGpu kShare = MilliGpu(300);

class ContainerMeterTest : public ::testing::Test {
 protected:
  void Hold(const std::string& pod, const std::string& uuid, MilliGpu compute = kWholeGpu) {
    holdings_.containers.push_back(Held(pod, uuid, compute));
    meter_.SetHolders(now_, holdings_);
  }
  void Release(const std::string& pod) {
    std::erase_if(holdings_.containers,
                  [&](const HeldContainer& container) { return container.holder.pod_name == pod; });
    meter_.SetHolders(now_, holdings_);
  }
  static ContainerGpuUse UseBy(const std::string& pod, const std::string& uuid, double fraction) {
    ContainerGpuUse use = tessera::agent::UseBy(pod, uuid);
    use.utilization = fraction;
    return use;
  }
  void Read(const std::string& uuid, std::optional<uint64_t> energy, std::optional<double> use) {
    meter_.AddReading(uuid, {.at = now_, .energy_mj = energy, .use = use});
  }
  void Pass(Duration by) { now_ += by; }
  const ContainerMeter::ContainerRecord& RecordOf(const std::string& pod,
                                                  const std::string& uuid) const {
    return meter_.gpus().at(uuid).containers.at({"ml", pod, "main"});
  }
  std::string Text() const {
    MetricsText text;
    meter_.Write(&text);
    return text.Take();
  }

  MonotonicTime now_{seconds(1000)};
  Holdings holdings_;
  ContainerMeter meter_{seconds(3)};
};

TEST_F(ContainerMeterTest, TheUseOfTheOnlyContainerIsTheUseOfTheGpu) {
  Hold("a", "GPU-0");
  Read("GPU-0", 5000, 0);
  Pass(seconds(1));
  Read("GPU-0", 5100, 0);
  Pass(seconds(1));
  Read("GPU-0", 5500, 0.75);
  EXPECT_EQ(RecordOf("a", "GPU-0").allocated(), seconds(2));
  EXPECT_EQ(RecordOf("a", "GPU-0").idle_time, seconds(1));
  EXPECT_EQ(RecordOf("a", "GPU-0").energy_mj, 300u);
  EXPECT_EQ(meter_.gpus().at("GPU-0").rest_mj, 200u) << "energy of an idle GPU belongs to no pod";
  const std::string labels = "{namespace=\"ml\",pod=\"a\",container=\"main\",uuid=\"GPU-0\"}";
  EXPECT_THAT(Text(), HasSubstr("gpu_allocated_seconds_total" + labels + " 2\n"));
  EXPECT_THAT(Text(), HasSubstr("gpu_idle_seconds_total" + labels + " 1\n"));
  EXPECT_THAT(Text(), HasSubstr("gpu_energy_joules_total" + labels + " 0.3\n"));
  EXPECT_THAT(Text(), HasSubstr("gpu_energy_joules_total{uuid=\"GPU-0\"} 0.2\n"));
}

TEST_F(ContainerMeterTest, SharesDivideTheEnergyByTheirUse) {
  Hold("a", "GPU-0", kShare);
  Hold("b", "GPU-0", kShare);
  Hold("c", "GPU-0", kShare);
  Read("GPU-0", 0, 0.5);
  for (const double fraction : {0.1, 0.3}) {
    Pass(milliseconds(500));
    meter_.AddUses({UseBy("a", "GPU-0", fraction), UseBy("b", "GPU-0", 0)});
  }
  Read("GPU-0", 1000, 0.5);
  EXPECT_EQ(RecordOf("a", "GPU-0").energy_mj, 200u) << "the mean of all reports";
  EXPECT_EQ(RecordOf("b", "GPU-0").energy_mj, 0u);
  EXPECT_EQ(RecordOf("b", "GPU-0").idle_time, seconds(1));
  EXPECT_EQ(RecordOf("a", "GPU-0").idle_time, seconds(0));
  EXPECT_FALSE(RecordOf("c", "GPU-0").energy_mj) << "no report of its use";
  EXPECT_FALSE(RecordOf("c", "GPU-0").idle_time);
  EXPECT_EQ(meter_.gpus().at("GPU-0").rest_mj, 800u);
  EXPECT_THAT(Text(), Not(HasSubstr("energy_joules_total{namespace=\"ml\",pod=\"c\"")));
}

TEST_F(ContainerMeterTest, AShareThatRanForLessThanAPercentOfTheTimeIsNotIdle) {
  Hold("a", "GPU-0", kShare);
  Read("GPU-0", {}, 0);
  ContainerGpuUse use = UseBy("a", "GPU-0", 0);
  use.compute_use = ComputeUse{.used = 0.004};
  meter_.AddUses({use});
  Pass(seconds(1));
  Read("GPU-0", {}, 0);
  EXPECT_EQ(RecordOf("a", "GPU-0").idle_time, seconds(0));
  meter_.AddUses({UseBy("a", "GPU-0", 0)});
  Pass(seconds(1));
  Read("GPU-0", {}, 0);
  EXPECT_EQ(RecordOf("a", "GPU-0").idle_time, seconds(1));
}

TEST_F(ContainerMeterTest, ValuesThatNvmlLacksAreAbsent) {
  Hold("a", "GPU-0");
  for (int i = 0; i < 3; ++i) {
    Read("GPU-0", {}, {});
    Pass(seconds(1));
  }
  EXPECT_EQ(RecordOf("a", "GPU-0").allocated(), seconds(2));
  EXPECT_THAT(Text(), Not(HasSubstr("gpu_idle_seconds_total{")));
  EXPECT_THAT(Text(), Not(HasSubstr("gpu_energy_joules_total{")));
}

TEST_F(ContainerMeterTest, AllHoldersOfAWholeGpuAreIdleIfTheGpuIsIdle) {
  Hold("a", "GPU-0");
  Hold("b", "GPU-0");
  Read("GPU-0", 0, 0);
  Pass(seconds(1));
  Read("GPU-0", 100, 0);
  EXPECT_EQ(RecordOf("a", "GPU-0").idle_time, seconds(1));
  Pass(seconds(1));
  Read("GPU-0", 300, 0.5);
  EXPECT_EQ(RecordOf("b", "GPU-0").idle_time, seconds(1));
  EXPECT_FALSE(RecordOf("b", "GPU-0").energy_mj) << "which of them ran is unknown";
  EXPECT_EQ(meter_.gpus().at("GPU-0").rest_mj, 300u);
}

TEST_F(ContainerMeterTest, TimeInWhichAGpuDidNotAnswerIsNotCountedAsIdle) {
  Hold("a", "GPU-0");
  Read("GPU-0", 0, 0);
  Pass(seconds(10));
  Read("GPU-0", 100, 0);
  EXPECT_EQ(RecordOf("a", "GPU-0").idle_time, seconds(0));
  EXPECT_EQ(RecordOf("a", "GPU-0").allocated(), seconds(10));
}

TEST_F(ContainerMeterTest, TheSeriesOfAContainerEndWithTheContainer) {
  Hold("a", "GPU-0");
  Hold("b", "MIG-1", kShare);
  Read("GPU-0", 0, 1);
  holdings_.containers[0].ended = true;
  Pass(seconds(1));
  meter_.SetHolders(now_, holdings_);
  EXPECT_TRUE(meter_.gpus().at("GPU-0").containers.empty()) << "its pod still has the GPU";
  Release("b");
  EXPECT_FALSE(meter_.gpus().contains("MIG-1"));
  Hold("a", "GPU-0");
  EXPECT_EQ(RecordOf("a", "GPU-0").allocated(), seconds(0)) << "counts anew";
}

TEST_F(ContainerMeterTest, TimeCountsFromTheStartOfTheContainer) {
  Read("GPU-0", 0, 0);
  Pass(milliseconds(700));
  Hold("a", "GPU-0");
  Pass(milliseconds(300));
  Read("GPU-0", 100, 0);
  EXPECT_EQ(RecordOf("a", "GPU-0").allocated(), milliseconds(300));
  EXPECT_EQ(RecordOf("a", "GPU-0").idle_time, milliseconds(300));
}

TEST_F(ContainerMeterTest, AnEnergyCounterThatDecreasesIsTreatedAsReset) {
  Hold("a", "GPU-0");
  Read("GPU-0", 1000000, 1);
  Pass(seconds(1));
  Read("GPU-0", 50, 1);
  Read("GPU-0", 90, 1);
  EXPECT_EQ(RecordOf("a", "GPU-0").energy_mj, 50u) << "the last reading is not newer";
}

// Containers come and go, and report too much, too little or nothing.
TEST_F(ContainerMeterTest, ContainersAndTheRestAddUpToTheDevice) {
  std::mt19937_64 random(11);
  const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  for (int history = 0; history < 60; ++history) {
    meter_ = ContainerMeter(seconds(3));
    holdings_ = {};
    uint64_t counter_mj = random() % 1'000'000, gained_mj = 0, ended_mj = 0;
    Read("GPU-0", counter_mj, 0);
    for (int step = 0; step < 200; ++step) {
      Pass(milliseconds(random() % 1500));
      const std::string pod = std::string(1, static_cast<char>('a' + random() % 5));
      const bool holds = meter_.gpus().at("GPU-0").containers.contains({"ml", pod, "main"});
      if (chance(30)) {
        if (holds) ended_mj += RecordOf(pod, "GPU-0").energy_mj.value_or(0);
        holds ? Release(pod) : Hold(pod, "GPU-0", chance(30) ? kWholeGpu : kShare);
      } else if (chance(50)) {
        meter_.AddUses({UseBy(pod, "GPU-0", static_cast<double>(random() % 150) / 100)});
      } else {
        const bool was_reset = chance(3);
        const uint64_t more = random() % 70'000;
        counter_mj = was_reset ? random() % (counter_mj + 1) : counter_mj + more;
        gained_mj += was_reset ? counter_mj : more;
        Pass(milliseconds(1));
        Read("GPU-0", counter_mj, static_cast<double>(random() % 101) / 100);
      }
      uint64_t sum = *meter_.gpus().at("GPU-0").rest_mj + ended_mj;
      for (const auto& [holder, record] : meter_.gpus().at("GPU-0").containers) {
        sum += record.energy_mj.value_or(0);
        ASSERT_LE(record.idle_time.value_or(Duration::zero()), record.allocated());
      }
      ASSERT_EQ(sum, gained_mj) << "history " << history << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace tessera::agent
