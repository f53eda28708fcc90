// SPDX-License-Identifier: Apache-2.0
// For linked_groups.h: the score of each set of up to 16 GPUs, and the highest total score of the
// groups into which a set can be divided. A set is a bit mask of positions. Included only in
// src/placement.
//
// Threads: immutable after construction.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera::placement {

using Mask = uint16_t;
// A score in units of device::kLinkScoreUnit, so that the total of 16 GPUs fits in 16 bits. A table
// of 32-bit scores would be twice as large, and less of it would stay in the CPU's cache.
using Score = uint16_t;

class PartitionTable {
 public:
  // `score(a, b)` is the device::ScoreOf of the positions a < b < count <= 16.
  PartitionTable(int count, const std::function<int(int, int)>& score);

  // Sum of the scores of all pairs in `set`.
  Score ScoreOf(Mask set) const { return scores_[set]; }

  // The best sum of scores over all divisions of `set` into groups of `group_size` positions and
  // one group of the rest. REQUIRES: |set| <= count - group_size, because one group of this size
  // was taken. For 2, 4 and 8, the sizes that future pods may request, |set| < count is enough.
  Score BestTotal(int group_size, Mask set) const {
    if (group_size == 1) return 0;
    const std::vector<Score>& totals = totals_[group_size];
    return totals.empty() ? scores_[set] : totals[set];
  }

  // All sets of `size` positions.
  std::span<const Mask> SetsOf(int size) const {
    return std::span(sets_).subspan(first_set_[size], first_set_[size + 1] - first_set_[size]);
  }

 private:
  void FillScores(const std::function<int(int, int)>& score);
  void FillSets();
  void FillTotals(int group_size, int largest_set);
  Score BestSplit(const std::vector<Score>& totals, Mask set, int group_size, int last_size) const;

  int count_;
  std::vector<Score> scores_;      // by set
  std::vector<Mask> sets_;         // by size
  std::vector<size_t> first_set_;  // by size, into sets_
  // By group size, then by set. Empty for a group size if no set that BestTotal allows is larger
  // than one group. The best total of a set is then the score of the set.
  std::vector<std::vector<Score>> totals_;
};

}  // namespace tessera::placement
