// SPDX-License-Identifier: Apache-2.0
#include "src/placement/partition_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "src/base/status.h"
#include "src/device/gpu.h"

namespace tessera::placement {
namespace {

constexpr int kMaxCount = 16;
constexpr int kFutureGroupSizes[] = {2, 4, 8};  // the sizes in LinkedGroups::Tables::MeritOf
static_assert(kMaxCount * (kMaxCount - 1) / 2 * device::kMaxLinkScore / device::kLinkScoreUnit <=
              std::numeric_limits<Score>::max());

// Calls `visit` with each set that consists of `chosen` and of `missing` more bits from `next` on.
// A plain loop chooses the last bit, because most of the time is spent there.
template <typename Visit>
void ForEachSet(const Mask* next, const Mask* end, int missing, Mask chosen, const Visit& visit) {
  if (missing == 0) return visit(chosen);
  if (missing == 1) {
    for (; next != end; ++next) visit(static_cast<Mask>(chosen | *next));
    return;
  }
  for (; end - next >= missing; ++next) {
    ForEachSet(next + 1, end, missing - 1, static_cast<Mask>(chosen | *next), visit);
  }
}

}  // namespace

PartitionTable::PartitionTable(int count, const std::function<int(int, int)>& score)
    : count_(count), totals_(std::max(count, 8) + 1) {
  TESSERA_CHECK(count >= 0 && count <= kMaxCount);
  FillScores(score);
  FillSets();
  for (int group_size = 2; group_size < count; ++group_size) {
    const bool future = std::ranges::count(kFutureGroupSizes, group_size) != 0;
    const int largest_set = future ? count - 1 : count - group_size;
    if (largest_set > group_size) FillTotals(group_size, largest_set);
  }
}

void PartitionTable::FillScores(const std::function<int(int, int)>& score) {
  std::array<std::array<Score, kMaxCount>, kMaxCount> pair{};
  for (int b = 0; b < count_; ++b) {
    for (int a = 0; a < b; ++a) {
      const int points = score(a, b);
      TESSERA_CHECK(points >= 0 && points <= device::kMaxLinkScore &&
                    points % device::kLinkScoreUnit == 0);
      pair[b][a] = static_cast<Score>(points / device::kLinkScoreUnit);
    }
  }
  scores_.resize(size_t{1} << count_);
  for (size_t set = 1; set < scores_.size(); ++set) {
    const int top = std::bit_width(set) - 1;
    const size_t rest = set ^ (size_t{1} << top);
    Score sum = scores_[rest];
    for (size_t left = rest; left != 0; left &= left - 1) sum += pair[top][std::countr_zero(left)];
    scores_[set] = sum;
  }
}

void PartitionTable::FillSets() {
  first_set_.assign(count_ + 2, 0);
  for (size_t set = 0; set < scores_.size(); ++set) ++first_set_[std::popcount(set) + 1];
  for (int size = 0; size <= count_; ++size) first_set_[size + 1] += first_set_[size];
  std::vector<size_t> next = first_set_;
  sets_.resize(scores_.size());
  for (size_t set = 0; set < scores_.size(); ++set) {
    sets_[next[std::popcount(set)]++] = static_cast<Mask>(set);
  }
}

// Fills the sets in the order of their sizes, because a total is computed from totals of subsets.
void PartitionTable::FillTotals(int group_size, int largest_set) {
  std::vector<Score>& totals = totals_[group_size];
  totals.resize(scores_.size());
  for (int size = 0; size <= largest_set; ++size) {
    for (const Mask set : SetsOf(size)) {
      totals[set] =
          size <= group_size ? scores_[set] : BestSplit(totals, set, group_size, size % group_size);
    }
  }
}

// The lowest position of `set` is in a full group or in the last, smaller group of `last_size`. So
// only divisions that put it into such a group are tried.
Score PartitionTable::BestSplit(const std::vector<Score>& totals, Mask set, int group_size,
                                int last_size) const {
  const Mask lowest = set & -set;
  std::array<Mask, kMaxCount> bits;
  Mask* end = bits.data();
  for (Mask left = set ^ lowest; left != 0; left &= left - 1) *end++ = left & -left;
  Score best = 0;
  const auto visit = [&, scores = scores_.data(), table = totals.data()](Mask part) {
    best = std::max(best, static_cast<Score>(scores[part] + table[set ^ part]));
  };
  ForEachSet(bits.data(), end, group_size - 1, lowest, visit);
  if (last_size > 0) ForEachSet(bits.data(), end, last_size - 1, lowest, visit);
  return best;
}

}  // namespace tessera::placement
