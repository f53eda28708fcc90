// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/share_history.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

MonotonicTime At(int seconds) { return MonotonicTime{} + std::chrono::seconds(seconds); }

double WorstOf(const ShareHistory::ShareSample& sample) {
  ShareHistory history;
  history.Add(At(1), sample);
  return history.Get(At(1))->worst;
}

TEST(ShareHistoryTest, TheErrorIsTheExcessUseOrTheShareThatWaitingThreadsLack) {
  EXPECT_NEAR(WorstOf({.used = 0.33, .waiting = 0.8, .share = 0.3, .limit = 0.3}), 0.03, 1e-9);
  EXPECT_NEAR(WorstOf({.used = 0.26, .waiting = 0.8, .share = 0.3, .limit = 0.3}), -0.04, 1e-9);
  EXPECT_EQ(WorstOf({.used = 0.1, .waiting = 0, .share = 0.3, .limit = 0.3}), 0)
      << "its threads did not wait";
  EXPECT_NEAR(WorstOf({.used = 0.1, .waiting = 0.05, .share = 0.3, .limit = 0.3}), -0.05, 1e-9)
      << "its threads waited for less than the missing share";
  EXPECT_EQ(WorstOf({.used = 0.5, .waiting = 0.4, .share = 0.3, .limit = 0.6}), 0)
      << "it uses compute that others leave";
  EXPECT_EQ(WorstOf({.used = 0.2, .waiting = 0.8, .share = 0.3, .limit = 0.2}), 0)
      << "the limit was lowered below the share";
}

TEST(ShareHistoryTest, KeepsTheWorstAndTheMeanOfAMinute) {
  ShareHistory history;
  EXPECT_EQ(history.Get(At(0)), std::nullopt);
  history.Add(At(0), {.used = 0.5, .waiting = 0, .share = 0.3, .limit = 0.3});
  for (int second = 1; second < 60; ++second) {
    history.Add(At(second), {.used = 0.3, .waiting = 0.8, .share = 0.3, .limit = 0.3});
  }
  EXPECT_NEAR(history.Get(At(59))->worst, 0.2, 1e-9);
  EXPECT_NEAR(history.Get(At(59))->mean, 0.3 + 0.2 / 60, 1e-9);
  EXPECT_NEAR(history.Get(At(60))->worst, 0, 1e-9) << "a minute ago";
  EXPECT_NEAR(history.Get(At(60))->mean, 0.3, 1e-9);
  EXPECT_EQ(history.Get(At(119)), std::nullopt);
}

TEST(ShareHistoryTest, TheDriversMeanCoversOnlySecondsInWhichItAnswered) {
  ShareHistory history;
  history.Add(At(0), {.used = 0.3, .share = 0.3, .limit = 0.3});
  EXPECT_EQ(history.Get(At(0))->mean_by_driver, std::nullopt);
  history.Add(At(1), {.used = 0.3, .share = 0.3, .limit = 0.3, .used_by_driver = 0.38});
  history.Add(At(2), {.used = 0.3, .share = 0.3, .limit = 0.3, .used_by_driver = 0.34});
  EXPECT_NEAR(*history.Get(At(2))->mean_by_driver, 0.36, 1e-9);
  EXPECT_NEAR(history.Get(At(2))->worst, 0, 1e-9) << "errors are those of the limiters' measure";
}

TEST(ShareHistoryTest, TheSecondInWhichALimitChangesHasNoError) {
  ShareHistory history;
  history.Add(At(0), {.used = 0.6, .waiting = 0.4, .share = 0.6, .limit = 0.6});
  history.Add(At(1), {.used = 0.5, .waiting = 0.4, .share = 0.2, .limit = 0.2});
  EXPECT_EQ(history.Get(At(1))->worst, 0) << "lowered";
  history.Add(At(2), {.used = 0.2, .waiting = 0.4, .share = 0.6, .limit = 0.6});
  EXPECT_EQ(history.Get(At(2))->worst, 0) << "raised";
  history.Add(At(3), {.used = 0.2, .waiting = 0.3, .share = 0.6, .limit = 0.6});
  EXPECT_NEAR(history.Get(At(3))->worst, -0.3, 1e-9);
}

TEST(ShareHistoryTest, SecondsInWhichWorkBeginsOrEndsHaveNoError) {
  const ShareHistory::ShareSample idle{.share = 0.3, .limit = 0.3}, full{0.3, 0.7, 0.3, 0.3},
      partly{0.1, 0.4, 0.3, 0.3}, starved{0, 1, 0.3, 0.3};
  ShareHistory history;
  for (int i = 0; const auto& sample : {idle, partly, full, partly, idle, partly, idle})
    history.Add(At(++i), sample);
  EXPECT_NEAR(history.Get(At(7))->worst, 0, 1e-9);
  for (int i = 7; const auto& sample : {full, partly, full}) history.Add(At(++i), sample);
  EXPECT_NEAR(history.Get(At(10))->worst, -0.2, 1e-9) << "within its work";
  for (int i = 10; const auto& sample : {full, starved, full}) history.Add(At(++i), sample);
  EXPECT_NEAR(history.Get(At(13))->worst, -0.3, 1e-9) << "a container that waits is not idle";
}

TEST(ShareHistoryTest, AContainerThatEndsIsForgotten) {
  ShareHistories histories;
  ContainerUses uses(1);
  uses[0].holder.container = "main";
  uses[0].compute = uses[0].compute_limit = MilliGpu(300);
  uses[0].compute_use = {.used = 0.5};
  histories.Update(At(1), &uses);
  EXPECT_NEAR(uses[0].share_record->worst, 0.2, 1e-9);
  uses[0].compute_use.reset();
  histories.Update(At(2), &uses);
  EXPECT_NEAR(uses[0].share_record->worst, 0.2, 1e-9) << "it idles";
  ContainerUses none;
  histories.Update(At(3), &none);
  histories.Update(At(4), &uses);
  EXPECT_EQ(uses[0].share_record, std::nullopt);
  uses[0].compute_limit = MilliGpu(0);
  uses[0].compute_use = {.used = 0.5};
  histories.Update(At(5), &uses);
  EXPECT_EQ(uses[0].share_record, std::nullopt) << "its compute is not limited";
}

}  // namespace
}  // namespace tessera::agent
