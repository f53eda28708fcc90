// SPDX-License-Identifier: Apache-2.0
#include "src/placement/greedy_choice.h"

#include <algorithm>
#include <utility>

namespace tessera::placement {
namespace {

struct SetGain {
  int score = 0;
  int same_numa = 0;  // members of the set that share the candidate's NUMA node
  auto operator<=>(const SetGain&) const = default;
};

SetGain GainOf(const NodeLinks& links, const std::vector<size_t>& set, size_t candidate) {
  SetGain gain;
  for (const size_t member : set) {
    gain.score += device::ScoreOf(links.links.At(member, candidate));
    const auto& node = links.numa_nodes[candidate];
    gain.same_numa += node && links.numa_nodes[member] == node;
  }
  return gain;
}

// Adds positions of `offered` until `set` has `size`, each time the position with the largest gain.
// Returns the sum of all gains.
SetGain Grow(const NodeLinks& links, const std::vector<size_t>& offered, size_t size,
             std::vector<size_t>* set) {
  SetGain sum;
  while (set->size() < size) {
    size_t best = 0;
    SetGain best_gain{-1, -1};
    for (const size_t candidate : offered) {
      if (std::ranges::find(*set, candidate) != set->end()) continue;
      const SetGain gain = GainOf(links, *set, candidate);
      if (gain <= best_gain) continue;
      best = candidate;
      best_gain = gain;
    }
    set->push_back(best);
    sum.score += best_gain.score;
    sum.same_numa += best_gain.same_numa;
  }
  return sum;
}

}  // namespace

std::vector<size_t> ChooseGreedily(const NodeLinks& links, const std::vector<size_t>& offered,
                                   const std::vector<size_t>& required, size_t size) {
  std::vector<std::vector<size_t>> starts;
  if (!required.empty()) {
    starts.push_back(required);
  } else {
    for (const size_t position : offered) starts.push_back({position});
  }
  std::vector<size_t> best;
  SetGain best_gain{-1, -1};
  for (std::vector<size_t>& set : starts) {
    const SetGain gain = Grow(links, offered, size, &set);
    if (gain <= best_gain) continue;
    best = std::move(set);
    best_gain = gain;
  }
  std::ranges::sort(best);
  return best;
}

}  // namespace tessera::placement
