// SPDX-License-Identifier: Apache-2.0
// Scores of all sets of up to 16 GPUs, and the best totals into which a set can be divided. A set
// is a bit mask of positions. Private to this room; see linked_groups.h for what it is used for.
//
// Threads: immutable after construction.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera::placement {

using Mask = uint16_t;
// In units of device::kLinkScoreUnit, so that the total of 16 GPUs fits: half the memory, and twice
// the speed where two tables share a cache.
using Score = uint16_t;

class PartitionTable {
 public:
  // `score(a, b)` of the pair of positions a < b < count <= 16, as device::ScoreOf gives it.
  PartitionTable(int count, const std::function<int(int, int)>& score);

  // Sum of the scores of all pairs in `set`.
  Score ScoreOf(Mask set) const { return scores_[set]; }

  // The best sum of scores over the ways to divide `set` into groups of `group` positions and one
  // of what is left over. REQUIRES: |set| <= count - group, or group is 2, 4 or 8 and
  // |set| < count: nobody asks for more.
  Score BestTotal(int group, Mask set) const {
    if (group == 1) return 0;
    const std::vector<Score>& totals = totals_[group];
    return totals.empty() ? scores_[set] : totals[set];
  }

  // All sets of `size` positions.
  std::span<const Mask> SetsOf(int size) const {
    return std::span(sets_).subspan(first_set_[size], first_set_[size + 1] - first_set_[size]);
  }

 private:
  void FillScores(const std::function<int(int, int)>& score);
  void FillSets();
  void FillTotals(int group, int largest);
  Score BestSplit(const std::vector<Score>& totals, Mask set, int group, int left_over) const;

  int count_;
  std::vector<Score> scores_;      // by set
  std::vector<Mask> sets_;         // by size
  std::vector<size_t> first_set_;  // by size, into sets_
  // By group, then by set. Empty for groups so large that no set holds two of them: then the best
  // total is the score.
  std::vector<std::vector<Score>> totals_;
};

}  // namespace tessera::placement
