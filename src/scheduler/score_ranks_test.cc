// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/score_ranks.h"

#include <gtest/gtest.h>

#include "src/base/random.h"

namespace tessera::scheduler {
namespace {

TEST(ScoreRanksTest, CountsBetterScores) {
  Random random(5);
  for (const uint64_t different : {1, 2, 40, 3000}) {
    std::vector<float> scores;
    for (int i = 0; i < 2000; ++i) {
      scores.push_back((static_cast<float>(random.Below(different)) - 20) / 7);
    }
    scores.push_back(0.0f);
    scores.push_back(-0.0f);
    ScoreRanks ranks;
    for (const float score : scores) ranks.Add(score);
    EXPECT_EQ(ranks.count(), scores.size());
    ranks.Rank([](size_t better) { return static_cast<int>(better); });
    for (const float score : scores) {
      const auto better =
          std::count_if(scores.begin(), scores.end(), [&](float other) { return other > score; });
      ASSERT_EQ(ranks.PointsOf(score), better) << score;
    }
  }
}

}  // namespace
}  // namespace tessera::scheduler
