// SPDX-License-Identifier: Apache-2.0
// The nodes that the default policy looks at twice. Private to this room. Threads: one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "src/placement/cluster.h"

namespace tessera::placement {

struct Candidate {
  uint64_t state = 0;
  NodeId node = kNoNode;
  float ranked = 0;   // score by the closed form
  float refined = 0;  // score by both forms
};

// The best states, at most kMost of them, each with its first node. Equal scores are told apart by
// state, so that what is on the list does not depend on the order of nodes.
class Selection {
 public:
  static constexpr size_t kMost = 16;

  // REQUIRES: wanted <= kMost.
  explicit Selection(size_t wanted) : wanted_(wanted) {}

  void Offer(NodeId id, float score, uint64_t state) {
    // Most nodes are in the state of one that was offered before.
    Candidate& offered = offered_[state % offered_.size()];
    if (offered.state == state && offered.ranked == score && offered.node <= id) return;
    offered = {.state = state, .node = id, .ranked = score};
    size_t at = size_;
    while (at > 0 && !Before(list_[at - 1], score, state)) --at;
    if (at > 0 && list_[at - 1].ranked == score && list_[at - 1].state == state) {
      list_[at - 1].node = std::min(list_[at - 1].node, id);
      return;
    }
    if (at == wanted_) return;
    if (size_ < wanted_) ++size_;
    std::move_backward(list_.begin() + at, list_.begin() + size_ - 1, list_.begin() + size_);
    list_[at] = {.state = state, .node = id, .ranked = score};
    if (size_ == wanted_) bar_ = list_[size_ - 1].ranked;
  }
  // Lower scores are not taken; lowest() while there is room.
  float bar() const { return bar_; }
  std::span<const Candidate> list() const { return std::span(list_).first(size_); }

 private:
  static bool Before(const Candidate& a, float score, uint64_t state) {
    return a.ranked > score || (a.ranked == score && a.state <= state);
  }

  size_t wanted_;
  size_t size_ = 0;
  float bar_ = std::numeric_limits<float>::lowest();
  std::array<Candidate, kMost> list_;
  std::array<Candidate, 64> offered_;  // by state
};

}  // namespace tessera::placement
