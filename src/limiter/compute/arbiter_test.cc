// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/compute/arbiter.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter {
namespace {

constexpr int64_t kStart = 100 * kSecond;

using Readings = std::vector<Arbiter::ContainerReading>;

Arbiter::ContainerReading Working(Arbiter::Id id, int64_t now, int64_t charged) {
  return {.id = id,
          .charged = charged,
          .processes = {{.slot = 3,
                         .metered = charged,
                         .in_flight = kMillisecond,
                         .last_launch = now,
                         .last_wait = now,
                         .last_written = now}}};
}

const Arbiter::Allowance& AllowanceOf(const Arbiter::Division& division, Arbiter::Id id) {
  for (const Arbiter::Allowance& allowance : division.allowances) {
    if (allowance.id == id) return allowance;
  }
  ADD_FAILURE() << "no allowance for " << id;
  return division.allowances.front();
}

TEST(ArbiterTest, GivesRatesAndALeaseToEveryContainer) {
  Arbiter arbiter;
  arbiter.Set(1, {.request = 0.25, .limit = 0.5});
  arbiter.Set(2, {.weight = 3});
  arbiter.Set(3, {.weight = 1});
  const auto& division = arbiter.Tick(kStart, {});
  ASSERT_EQ(division.allowances.size(), 3u);
  EXPECT_EQ(AllowanceOf(division, 1).cap, kOne / 2);
  EXPECT_EQ(AllowanceOf(division, 1).floor, kOne / 4);
  EXPECT_EQ(AllowanceOf(division, 2).cap, 0u);
  EXPECT_NEAR(AllowanceOf(division, 2).floor, 0.75 * 0.75 * kOne, 1);
  EXPECT_NEAR(AllowanceOf(division, 3).floor, 0.75 * 0.25 * kOne, 1);
  for (const auto& allowance : division.allowances) EXPECT_EQ(allowance.lease_end, kStart + kLease);
}

TEST(ArbiterTest, OnlyAChangedShareIncrementsTheEpoch) {
  Arbiter arbiter;
  arbiter.Set(1, {.request = 0.25, .limit = 0.5});
  const uint32_t epoch = AllowanceOf(arbiter.Tick(kStart, {}), 1).epoch;
  arbiter.Set(1, {.request = 0.25, .limit = 0.5});
  EXPECT_EQ(AllowanceOf(arbiter.Tick(kStart + kMillisecond, {}), 1).epoch, epoch);
  arbiter.Set(1, {.request = 0.25, .limit = 0.6});
  EXPECT_EQ(AllowanceOf(arbiter.Tick(kStart + 2 * kMillisecond, {}), 1).epoch, epoch + 1);
}

TEST(ArbiterTest, StopsALowClassWhileAHighClassWorks) {
  Arbiter arbiter;
  arbiter.Set(1, {.weight = 1, .priority = PriorityClass::kHigh});
  arbiter.Set(2, {.weight = 1, .priority = PriorityClass::kLow});
  int64_t now = kStart;
  const uint32_t before = AllowanceOf(arbiter.Tick(now, Readings{Working(2, now, 0)}), 2).epoch;
  now += kMillisecond;
  const auto& division = arbiter.Tick(now, Readings{Working(1, now, 0), Working(2, now, 0)});
  EXPECT_EQ(AllowanceOf(division, 2).flags, kComputeStop | kComputeLow);
  EXPECT_EQ(AllowanceOf(division, 2).epoch, before + 1)
      << "threads give up the time taken in advance";
  EXPECT_EQ(AllowanceOf(division, 1).flags, 0u);
  EXPECT_LE(division.next_tick - now, kMillisecond) << "the next tick is soon";
  now += 20 * kMillisecond;
  EXPECT_EQ(
      AllowanceOf(
          arbiter.Tick(now, Readings{Arbiter::ContainerReading{.id = 1}, Working(2, now, 0)}), 2)
          .flags,
      kComputeLow);
}

// A low class that claims a kernel which never ends delays the high class by 8 ms, and no more.
TEST(ArbiterTest, AHighClassAwaitsALongKernelForALimitedTime) {
  Arbiter arbiter;
  arbiter.Set(1, {.weight = 1, .priority = PriorityClass::kHigh});
  arbiter.Set(2, {.weight = 1, .priority = PriorityClass::kLow});
  int64_t held = 0;
  for (int64_t now = kStart; now < kStart + kSecond; now += kMillisecond) {
    Arbiter::ContainerReading low = Working(2, now, 0);
    low.processes[0].longest = 5 * kMillisecond;
    const auto& division = arbiter.Tick(now, Readings{Working(1, now, 0), low});
    EXPECT_NE(AllowanceOf(division, 2).flags & kComputeStop, 0u);
    held += AllowanceOf(division, 1).flags == kComputeStop ? kMillisecond : 0;
  }
  EXPECT_GT(held, 5 * kMillisecond);
  EXPECT_LE(held, 8 * kMillisecond);
}

TEST(ArbiterTest, TicksSeldomWhileNoContainerWorks) {
  Arbiter arbiter;
  for (Arbiter::Id id = 0; id < 100; ++id) arbiter.Set(id, {.weight = 1});
  EXPECT_GE(arbiter.Tick(kStart, {}).next_tick - kStart, 10 * kMillisecond);
  EXPECT_LE(arbiter.Tick(kStart, Readings{Working(1, kStart, 0), Working(2, kStart, 0)}).next_tick -
                kStart,
            2 * kMillisecond);
}

TEST(ArbiterTest, TicksLessOftenForManyContainers) {
  Arbiter arbiter;
  Readings readings;
  for (Arbiter::Id id = 0; id < 12; ++id) {
    arbiter.Set(id, {.weight = 1});
    readings.push_back(Working(id, kStart, 0));
  }
  const int64_t next = arbiter.Tick(kStart, readings).next_tick;
  EXPECT_EQ(arbiter.Tick(next, readings).next_tick - next, 3 * kMillisecond);
  const int64_t later = next + 2 * kSecond;
  EXPECT_EQ(
      arbiter.Tick(later, Readings{Working(0, later, 0), Working(1, later, 0)}).next_tick - later,
      2 * kMillisecond);
}

// One wake-up of the agent serves the arbiters of all GPUs.
TEST(ArbiterTest, ArbitersThatStartAtDifferentTimesTickTogether) {
  const auto next_of = [](int64_t start) {
    Arbiter arbiter;
    for (const Arbiter::Id id : {1, 2}) arbiter.Set(id, {.weight = 1});
    for (int64_t now = start;;) {
      now = arbiter.Tick(now, Readings{Working(1, now, 0), Working(2, now, 0)}).next_tick;
      if (now >= start + 8 * kMillisecond) return now;
    }
  };
  EXPECT_EQ(next_of(kStart + 1), next_of(kStart + 300 * kMicrosecond));
}

TEST(ArbiterTest, ReadsAnIdleContainerSeldom) {
  Arbiter arbiter;
  arbiter.Set(1, {.weight = 1});
  arbiter.Set(2, {.weight = 1, .priority = PriorityClass::kHigh});
  EXPECT_TRUE(arbiter.IsDue(kStart, 1)) << "the container was never read";
  Arbiter::ContainerReading reading = Working(1, kStart, 0);
  arbiter.Tick(kStart, Readings{reading});
  EXPECT_TRUE(arbiter.IsDue(kStart + kMillisecond, 1));
  reading.processes[0].in_flight = 0;
  const int64_t later = kStart + kSecond;
  arbiter.Tick(later, Readings{reading, {.id = 2}});
  EXPECT_FALSE(arbiter.IsDue(later + 2 * kMillisecond, 1));
  EXPECT_TRUE(arbiter.IsDue(later + 20 * kMillisecond, 1));
  EXPECT_TRUE(arbiter.IsDue(later + 2 * kMillisecond, 2)) << "a low class has to stop at once";
  EXPECT_FALSE(arbiter.IsDue(later, 3));
}

TEST(ArbiterTest, ForgetsTheWorkInFlightOfADeadProcess) {
  Arbiter arbiter;
  arbiter.Set(1, {.weight = 1, .priority = PriorityClass::kHigh});
  arbiter.Set(2, {.weight = 1, .priority = PriorityClass::kLow});
  const Arbiter::ContainerReading dead = Working(1, kStart, 0);
  EXPECT_NE(AllowanceOf(arbiter.Tick(kStart, Readings{dead}), 2).flags & kComputeStop, 0u);
  const int64_t later = kStart + 150 * kMillisecond;
  EXPECT_EQ(AllowanceOf(arbiter.Tick(later, Readings{dead}), 2).flags & kComputeStop, 0u);
}

// A container that claims to work but is charged nothing is owed its share. It must not hold the
// others for longer than its share.
TEST(ArbiterTest, AContainerThatDoesNotUseItsTurnsTakesLittleFromOthers) {
  Arbiter arbiter;
  arbiter.Set(1, {.request = 0.2});
  arbiter.Set(2, {.request = 0.8});
  int64_t charged = 0, pool = 0, now = kStart;
  for (int i = 0; i < 5000; ++i, now += 2 * kMillisecond) {
    Arbiter::ContainerReading idles = Working(1, now, 0);
    idles.processes[0].last_wait = 0;
    const int64_t used = std::clamp<int64_t>(pool - charged, 0, 2 * kMillisecond);
    Arbiter::ContainerReading works = Working(2, now, charged += used);
    works.processes[0].in_flight = used;
    pool = AllowanceOf(arbiter.Tick(now, Readings{idles, works}), 2).pool;
  }
  EXPECT_GT(double(charged), 0.5 * double(now - kStart));
}

// For `seconds`, container 1 meters 0.4 of the GPU, and NVML reports `nvml` for it. If `beside`,
// container 2 works at the same time.
void RunMetered(Arbiter* arbiter, int64_t* now, int64_t* metered, int seconds, double nvml,
                bool beside) {
  for (int second = 0; second < seconds; ++second) {
    for (const int64_t end = *now + kSecond; *now < end; *now += 4 * kMillisecond) {
      *metered += int64_t(0.4 * 4 * kMillisecond);
      Readings readings{Working(1, *now, *metered)};
      readings.push_back(beside ? Working(2, *now, 0) : Arbiter::ContainerReading{.id = 2});
      arbiter->Tick(*now, readings);
    }
    arbiter->RecordUtilization(*now, 1, nvml);
  }
}

// The factor by which the arbiter corrects the meter of a container whose launches take `length` at
// first, and `later_length` for the last 0.6 seconds. It meters 0.4 of the GPU; NVML reports
// `nvml`.
double BiasAfterOtherLaunches(double nvml, int64_t length, int64_t later_length) {
  Arbiter arbiter;
  arbiter.Set(1, {.request = 0.4, .limit = 0.4});
  int64_t now = kStart, metered = 0;
  uint32_t bias = 0;
  const auto work = [&](int64_t time, int64_t longest) {
    for (const int64_t end = now + time; now < end; now += 4 * kMillisecond) {
      metered += int64_t(0.4 * 4 * kMillisecond);
      Arbiter::ContainerReading reading = Working(1, now, metered);
      reading.processes[0].longest = longest;
      bias = AllowanceOf(arbiter.Tick(now, Readings{reading}), 1).bias;
    }
  };
  for (int second = 0; second < 10; ++second) {
    work(kSecond, length);
    arbiter.RecordUtilization(now, 1, nvml);
  }
  work(kSecond * 3 / 5, later_length);
  return double(bias) / kOne;
}

TEST(ArbiterTest, ACorrectionThatFavorsAContainerEndsWhenItsLaunchesChange) {
  constexpr int64_t kShort = 20 * kMicrosecond, kLong = kMillisecond;
  EXPECT_NEAR(BiasAfterOtherLaunches(0.1, kShort, kShort), 0.25, 0.02);
  EXPECT_EQ(BiasAfterOtherLaunches(0.1, kShort, kLong), 1);
  EXPECT_EQ(BiasAfterOtherLaunches(0.1, kLong, kShort), 1);
  EXPECT_NEAR(BiasAfterOtherLaunches(0.1, kShort, 2 * kShort), 0.25, 0.02);
  EXPECT_NEAR(BiasAfterOtherLaunches(0.8, kShort, kLong), 2, 0.1)
      << "otherwise a container could end the correction by reporting other launches";
}

// NVML does not report copies, so only the rest of the metered time is compared with NVML.
TEST(ArbiterTest, CopiesDoNotCorrectTheMeter) {
  for (const double copied_part : {0.15, 0.9}) {
    Arbiter arbiter;
    arbiter.Set(1, {.request = 0.5, .limit = 0.5});
    int64_t now = kStart, metered = 0;
    uint32_t bias = 0;
    for (int second = 0; second < 10; ++second) {
      for (const int64_t end = now + kSecond; now < end; now += 4 * kMillisecond) {
        metered += int64_t(0.5 * 4 * kMillisecond);
        Arbiter::ContainerReading reading = Working(1, now, metered);
        reading.copied = int64_t(copied_part * double(metered));
        bias = AllowanceOf(arbiter.Tick(now, Readings{reading}), 1).bias;
      }
      arbiter.RecordUtilization(now, 1, 0.5 * (1 - copied_part));
    }
    EXPECT_NEAR(double(bias) / kOne, 1, 0.02) << copied_part;
  }
}

// NVML misses processes that end within a second. Each of them uses the same slot for 50 ms.
TEST(ArbiterTest, ShortProcessesDoNotCorrectTheMeter) {
  for (const bool beside : {false, true}) {
    Arbiter arbiter;
    arbiter.Set(1, {.request = 0.5, .limit = 0.5});
    arbiter.Set(2, {.request = 0.5, .limit = 0.5});
    int64_t now = kStart, charged = 0;
    uint32_t bias = 0;
    for (int i = 0; i < 5000; ++i, now += 2 * kMillisecond) {
      charged += kMillisecond;
      Arbiter::ContainerReading reading = Working(1, now, charged);
      reading.processes[0].metered = (1 + i % 25) * kMillisecond;
      Readings readings{reading};
      if (beside) readings.push_back(Working(2, now, 0));
      bias = AllowanceOf(arbiter.Tick(now, readings), 1).bias;
      if (i % 500 == 499) arbiter.RecordUtilization(now, 1, 0.05);
    }
    EXPECT_EQ(bias, kOne) << beside;
  }
}

TEST(ArbiterTest, CorrectsTheMeterSeparatelyForAContainerAloneAndBesideOthers) {
  Arbiter arbiter;
  arbiter.Set(1, {.request = 0.3, .limit = 0.3});
  arbiter.Set(2, {.request = 0.7, .limit = 0.7});
  int64_t now = kStart, metered = 0;
  const auto bias = [&](bool beside) {
    RunMetered(&arbiter, &now, &metered, 1, beside ? 0.3 : 0.4, beside);
    Readings readings{Working(1, now, metered)};
    readings.push_back(beside ? Working(2, now, 0) : Arbiter::ContainerReading{.id = 2});
    return double(AllowanceOf(arbiter.Tick(now, readings), 1).bias) / kOne;
  };
  RunMetered(&arbiter, &now, &metered, 10, 0.3, true);
  EXPECT_NEAR(bias(true), 0.75, 0.02);
  EXPECT_NEAR(bias(false), 1, 0.01) << "the error beside another container does not apply";
  RunMetered(&arbiter, &now, &metered, 10, 0.4, false);
  EXPECT_NEAR(bias(false), 1, 0.01);
  EXPECT_NEAR(bias(true), 0.75, 0.02) << "the factor for contended times is kept";
  RunMetered(&arbiter, &now, &metered, 10, 0.5, false);
  EXPECT_NEAR(
      double(AllowanceOf(arbiter.Tick(now, Readings{Working(1, now, metered)}), 1).bias) / kOne,
      1.25, 0.02)
      << "the meter of a container alone is corrected, too";
}

// A container may write anything into its lines.
TEST(ArbiterTest, FalseReadingsDoNotAffectOtherContainers) {
  std::mt19937_64 random(3);
  const auto number = [&]() -> int64_t {
    switch (random() % 5) {
      case 0:
        return std::numeric_limits<int64_t>::max();
      case 1:
        return std::numeric_limits<int64_t>::min();
      case 2:
        return 0;
      default:
        return int64_t(random());
    }
  };
  Arbiter arbiter;
  for (Arbiter::Id id = 0; id < 4; ++id) arbiter.Set(id, {.request = 0.25});
  int64_t now = kStart;
  for (int i = 0; i < 5000; ++i, now += kMillisecond) {
    Arbiter::ContainerReading hostile{.id = 0, .charged = number(), .copied = number()};
    for (int j = 0; j < 3; ++j) {
      hostile.processes.push_back({.slot = uint32_t(random() % 4),
                                   .metered = number(),
                                   .in_flight = number(),
                                   .last_launch = number(),
                                   .last_long_work = number(),
                                   .last_wait = number(),
                                   .last_written = number(),
                                   .longest = number()});
    }
    const auto& division =
        arbiter.Tick(now, Readings{hostile, Working(1, now, i * kMillisecond / 4)});
    for (const auto& allowance : division.allowances) {
      ASSERT_EQ(allowance.lease_end, now + kLease);
      ASSERT_GE(allowance.bias, kOne / 10);
      ASSERT_LE(allowance.bias, kOne * 10);
    }
    if (i % 1000 == 999) arbiter.RecordUtilization(now, 0, double(random() % 100) / 100);
  }
}

}  // namespace
}  // namespace tessera::limiter
