// SPDX-License-Identifier: Apache-2.0
// Ranks thousands of scores by how many others are better. Equal nodes have equal scores, so
// distinct scores are collected in a hash table and only these are sorted. Included only in
// src/scheduler.
//
//   for (float score : scores) ranks.Add(score);
//   ranks.Rank(points_of_better);       // a function of the number of better scores
//   ranks.PointsOf(score)
//
// Threads: one. REQUIRES: scores are not NaN. Cost: a table that is at most half full.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::scheduler {

class ScoreRanks {
 public:
  void Add(float score) {
    ScoreCount* slot = &At(score);
    if (slot->count == 0 && ++used_ * 2 > slots_.size()) {
      Grow();
      slot = &At(score);
    }
    slot->score = score;
    ++slot->count;
    ++count_;
  }
  size_t count() const { return count_; }

  template <typename PointsOfBetter>
  void Rank(PointsOfBetter points_of) {
    std::vector<ScoreCount*> order;
    for (ScoreCount& slot : slots_) {
      if (slot.count > 0) order.push_back(&slot);
    }
    std::sort(order.begin(), order.end(),
              [](ScoreCount* a, ScoreCount* b) { return a->score > b->score; });
    size_t better = 0;
    for (ScoreCount* slot : order) {
      slot->points = points_of(better);
      better += slot->count;
    }
  }
  // REQUIRES: `score` was added before the last Rank.
  int PointsOf(float score) { return At(score).points; }

 private:
  struct ScoreCount {
    float score = 0;
    uint32_t count = 0;  // 0: empty slot
    int points = 0;
  };

  // The slot of the score, or the empty slot for it.
  ScoreCount& At(float score) {
    // 0 and -0 are equal and must have equal hashes.
    const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
    size_t at = (bits * 0x9E3779B1u) >> shift_;
    while (slots_[at].count > 0 && slots_[at].score != score) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void Grow() {
    const std::vector<ScoreCount> old =
        std::exchange(slots_, std::vector<ScoreCount>(slots_.size() * 2));
    --shift_;
    for (const ScoreCount& slot : old) {
      if (slot.count > 0) At(slot.score) = slot;
    }
  }

  std::vector<ScoreCount> slots_ = std::vector<ScoreCount>(256);
  int shift_ = 32 - 8;  // 32 - log2 of the table size
  size_t used_ = 0;
  size_t count_ = 0;
};

}  // namespace tessera::scheduler
