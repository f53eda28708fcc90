// SPDX-License-Identifier: Apache-2.0
// Scores of all sets of up to 16 GPUs, and the best totals into which each set can be divided, for
// linked_groups.h. A set is a bit mask of positions. Included only in src/placement.
//
// Threads: immutable after construction.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera::placement {

using Mask = uint16_t;
// In units of device::kLinkScoreUnit, so that the total of 16 GPUs fits in 16 bits. This halves the
// memory, and doubles the speed if two tables share a cache.
using Score = uint16_t;

class PartitionTable {
 public:
  // `score(a, b)` is the device::ScoreOf of the positions a < b < count <= 16.
  PartitionTable(int count, const std::function<int(int, int)>& score);

  // Sum of the scores of all pairs in `set`.
  Score ScoreOf(Mask set) const { return scores_[set]; }

  // The best sum of scores over all divisions of `set` into groups of `group` positions and one
  // group of the rest. REQUIRES: |set| <= count - group, or group is 2, 4 or 8 and |set| < count.
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
  // By group size, then by set. Empty for groups so large that no set contains two: the best total
  // of a set is then its score.
  std::vector<std::vector<Score>> totals_;
};

}  // namespace tessera::placement
