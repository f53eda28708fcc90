// SPDX-License-Identifier: Apache-2.0
// 1,000 histories, each from its seed. A failing one is played again, and told, by
//   TESSERA_SIMULATION_SEED=<seed> simulation_test
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/base/log.h"
#include "tests/simulation/history.h"

namespace tessera::simulation {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kHistoriesEach = 2;
#else
constexpr uint64_t kHistoriesEach = 50;
#endif

HistoryOptions OptionsOf(uint64_t seed) {
  // Every second one has pods that come past the scheduler.
  return {.seed = seed, .past_us = seed % 2 == 0 ? 0 : 15};
}

std::string Told(const Outcome& outcome) {
  std::string text = outcome.failure + "\n";
  for (const std::string& note : outcome.last_notes) text += note + "\n";
  return text;
}

// Crashes are what this is about; the log need not tell each of them.
class SimulationTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  ScopedLogSinkForTest quiet_{[](std::string_view) {}};
};

TEST_P(SimulationTest, NoGpuIsGivenTwiceNoPodGetsAnotherAndNothingIsLeft) {
  size_t from_memory = 0;
  for (uint64_t i = 0; i < kHistoriesEach; ++i) {
    const uint64_t seed = GetParam() * kHistoriesEach + i;
    const Outcome outcome = Play(OptionsOf(seed));
    ASSERT_EQ(outcome.failure, "") << "seed " << seed << "\n" << Told(outcome);
    EXPECT_GT(outcome.containers, 20u) << "seed " << seed << ": nothing happened";
    from_memory += outcome.from_memory;
  }
  EXPECT_GT(from_memory, 0u) << "no agent started while the API server was away";
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest, ::testing::Range<uint64_t>(0, 20));

TEST(HistoryTest, ASeedRepeatsItself) {
  for (const uint64_t seed : {7, 8}) {
    const Outcome first = Play(OptionsOf(seed)), second = Play(OptionsOf(seed));
    EXPECT_GT(first.events, 100u);
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.fingerprint, second.fingerprint);
  }
}

TEST(HistoryTest, TellsOneSeed) {
  const char* seed = std::getenv("TESSERA_SIMULATION_SEED");
  if (seed == nullptr) GTEST_SKIP() << "TESSERA_SIMULATION_SEED names no seed";
  const Outcome outcome = Play(OptionsOf(std::strtoull(seed, nullptr, 10)));
  std::printf("%s%zu events, %zu containers, %zu grants before the API server was heard of\n",
              Told(outcome).c_str(), outcome.events, outcome.containers, outcome.from_memory);
  EXPECT_EQ(outcome.failure, "");
}

}  // namespace
}  // namespace tessera::simulation
