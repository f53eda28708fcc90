// SPDX-License-Identifier: Apache-2.0
// Computes the choice of chooser.h by brute force, without tables, for tests and benchmarks. Tries
// each set and each division of the other GPUs, so use it for at most 10 GPUs. Search::kMemo keeps
// results, so it is fast enough for 16 GPUs.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "src/placement/chooser.h"

namespace tessera::placement::testing {

enum class Search { kPlain, kMemo };

class ReferenceChoice {
 public:
  ReferenceChoice(const Topology& topology, Search search) : topology_(topology), search_(search) {}

  int Score(uint32_t set) const {
    int sum = 0;
    for (uint32_t left = set; left != 0; left &= left - 1) {
      for (uint32_t others = left & (left - 1); others != 0; others &= others - 1) {
        sum +=
            device::ScoreOf(topology_.links.At(std::countr_zero(left), std::countr_zero(others)));
      }
    }
    return sum;
  }

  // Best sum of scores when `set` is divided into groups of `group` and one group of the rest.
  int BestTotal(uint32_t set, int group) {
    if (group == 1) return 0;
    const int count = std::popcount(set);
    if (count <= group) return Score(set);
    if (search_ == Search::kMemo) {
      if (const auto known = memo_[group].find(set); known != memo_[group].end()) {
        return known->second;
      }
    }
    int best = -1;
    const uint32_t lowest = set & -set;
    for (uint32_t part = set; part != 0; part = (part - 1) & set) {
      if ((part & lowest) == 0) continue;
      const int size = std::popcount(part);
      if (size != group && size != count % group) continue;
      best = std::max(best, Score(part) + BestTotal(set ^ part, group));
    }
    if (search_ == Search::kMemo) memo_[group][set] = best;
    return best;
  }

  int Total(uint32_t available, uint32_t set) {
    return Score(set) + BestTotal(available ^ set, std::popcount(set));
  }

  // The chosen set; 0 if no such set exists.
  uint32_t Choose(uint32_t available, uint32_t must_include, int size) {
    using Rank = std::tuple<int, int, int, int, int, std::vector<int>>;
    std::optional<Rank> best;
    uint32_t answer = 0;
    for (uint32_t set = available; set != 0; set = (set - 1) & available) {
      if (std::popcount(set) != size || (set & must_include) != must_include) continue;
      const uint32_t rest = available ^ set;
      std::vector<int> positions;  // negative: lower positions first
      for (uint32_t left = set; left != 0; left &= left - 1) {
        positions.push_back(-std::countr_zero(left));
      }
      const Rank rank{Total(available, set),
                      Score(set),
                      BestTotal(rest, 2) + BestTotal(rest, 4) + BestTotal(rest, 8),
                      -static_cast<int>(PerNuma(set).size()),
                      SumOfSquares(PerNuma(rest)),
                      positions};
      if (best && rank <= *best) continue;
      best = rank;
      answer = set;
    }
    return answer;
  }

 private:
  std::map<int, int> PerNuma(uint32_t set) const {
    std::map<int, int> counts;
    for (; set != 0; set &= set - 1) {
      if (const auto& node = topology_.numa_nodes[std::countr_zero(set)]) ++counts[*node];
    }
    return counts;
  }
  static int SumOfSquares(const std::map<int, int>& counts) {
    int sum = 0;
    for (const auto& [node, count] : counts) sum += count * count;
    return sum;
  }

  const Topology& topology_;
  const Search search_;
  std::map<int, std::unordered_map<uint32_t, int>> memo_;
};

}  // namespace tessera::placement::testing
