// SPDX-License-Identifier: Apache-2.0
// 300 histories, each from its own seed. This command plays one history again and prints it:
//   TESSERA_SIMULATION_SEED=<seed> simulation_test --gtest_filter='*ReplaysThe*'
// This command plays more histories, from the seed in TESSERA_SIMULATION_FROM:
//   TESSERA_SIMULATION_HISTORIES=<count> simulation_test --gtest_filter='*PlaysAsMany*'
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/base/log.h"
#include "tests/simulation/history.h"

namespace tessera::simulation {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kHistoriesPerTest = 2;
#else
constexpr uint64_t kHistoriesPerTest = 15;
#endif

HistoryOptions OptionsOf(uint64_t seed) {
  // In every second history some pods bypass the scheduler.
  return {.seed = seed, .bypass_percent = seed % 2 == 0 ? 0 : 15};
}

std::string LogOf(const Outcome& outcome) {
  std::string text = outcome.failure + "\n";
  for (const std::string& note : outcome.last_notes) text += note + "\n";
  return text;
}

// Suppresses the log, because histories contain many expected crashes.
class SimulationTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  ScopedLogSinkForTest quiet_{[](std::string_view) {}};
};

TEST_P(SimulationTest, EachHistoryKeepsTheInvariants) {
  size_t grants_from_memory = 0, stale_bindings = 0, preemptions = 0;
  for (uint64_t i = 0; i < kHistoriesPerTest; ++i) {
    const uint64_t seed = GetParam() * kHistoriesPerTest + i;
    const Outcome outcome = Play(OptionsOf(seed));
    ASSERT_EQ(outcome.failure, "") << "seed " << seed << "\n" << LogOf(outcome);
    EXPECT_GT(outcome.containers, 20u) << "seed " << seed << ": nothing happened";
    grants_from_memory += outcome.grants_from_memory;
    stale_bindings += outcome.stale_bindings;
    preemptions += outcome.preemptions;
  }
  if (kHistoriesPerTest < 15) return;
  EXPECT_GT(grants_from_memory, 0u) << "no agent started while the API server was down";
  EXPECT_GT(stale_bindings, 0u) << "no former leader's binding took effect";
  EXPECT_GT(preemptions, 0u) << "no pod was preempted";
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest, ::testing::Range<uint64_t>(0, 20));

TEST(HistoryTest, TwoRunsOfASeedAreEqual) {
  for (const uint64_t seed : {7, 8}) {
    const Outcome first = Play(OptionsOf(seed)), second = Play(OptionsOf(seed));
    EXPECT_GT(first.events, 100u);
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.fingerprint, second.fingerprint);
  }
}

TEST(HistoryTest, ReplaysTheRequestedSeed) {
  const char* seed = std::getenv("TESSERA_SIMULATION_SEED");
  if (seed == nullptr) GTEST_SKIP() << "TESSERA_SIMULATION_SEED names no seed";
  const Outcome outcome = Play(OptionsOf(std::strtoull(seed, nullptr, 10)));
  std::printf(
      "%s%zu events, %zu containers, %zu grants before the API server was reached, "
      "%zu stale bindings, %zu repairs, %zu preemptions\n",
      LogOf(outcome).c_str(), outcome.events, outcome.containers, outcome.grants_from_memory,
      outcome.stale_bindings, outcome.repairs, outcome.preemptions);
  EXPECT_EQ(outcome.failure, "");
}

uint64_t NumberIn(const char* variable, uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

TEST(HistoryTest, PlaysAsManyHistoriesAsRequested) {
  const uint64_t count = NumberIn("TESSERA_SIMULATION_HISTORIES", 0);
  if (count == 0) GTEST_SKIP() << "TESSERA_SIMULATION_HISTORIES names no count";
  const uint64_t from = NumberIn("TESSERA_SIMULATION_FROM", 1000);
  const ScopedLogSinkForTest quiet([](std::string_view) {});
  const auto began = std::chrono::steady_clock::now();
  size_t containers = 0, stale_bindings = 0, repairs = 0, preemptions = 0;
  int failed = 0;
  for (uint64_t seed = from; seed < from + count && failed < 20; ++seed) {
    const Outcome outcome = Play(OptionsOf(seed));
    containers += outcome.containers;
    stale_bindings += outcome.stale_bindings;
    repairs += outcome.repairs;
    preemptions += outcome.preemptions;
    EXPECT_EQ(outcome.failure, "") << "seed " << seed;
    failed += !outcome.failure.empty();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf(
      "%d failed; %zu containers, %zu stale bindings, %zu repairs, %zu preemptions; "
      "%.1f ms a history\n",
      failed, containers, stale_bindings, repairs, preemptions,
      took.count() * 1000 / static_cast<double>(count));
}

}  // namespace
}  // namespace tessera::simulation
