// SPDX-License-Identifier: Apache-2.0
#include "src/placement/ranker.h"

#include <algorithm>

namespace tessera::placement {

Ranker::ShapeScores& Ranker::ScoresOf(ShapeId shape) {
  if (shape >= table_index_of_.size()) table_index_of_.resize(cluster_.shapes().size(), 0);
  const uint64_t serial = cluster_.shapes().serial(shape);
  if (table_index_of_[shape] == 0) {
    size_t slot = tables_.size();
    if (slot < kMaxShapes) {
      tables_.emplace_back();
    } else {
      const auto oldest = std::min_element(tables_.begin(), tables_.end(), [](auto& a, auto& b) {
        return a.last_used < b.last_used;
      });
      slot = static_cast<size_t>(oldest - tables_.begin());
      std::replace(table_index_of_.begin(), table_index_of_.end(), static_cast<uint32_t>(slot + 1),
                   0u);
    }
    table_index_of_[shape] = static_cast<uint32_t>(slot + 1);
    tables_[slot].valid = false;
  }
  ShapeScores& table = tables_[table_index_of_[shape] - 1];
  if (table.serial != serial) {
    table.serial = serial;
    table.valid = false;
  }
  table.last_used = ++clock_;
  current_ = &table;
  return table;
}

void Ranker::Grow(ShapeScores& table) {
  // The new nodes are in the cluster's list of changes, so Refresh scores them next.
  table.scores.resize(cluster_.size(), kUnfit);
  table.groups.resize(cluster_.size(), 0);
}

NodeId Ranker::Best() const {
  const std::vector<float>& scores = current_->scores;
  NodeId best = kNoNode;
  float highest = kUnfit;
  for (NodeId node = 0; node < scores.size(); ++node) {
    if (scores[node] > highest) {
      highest = scores[node];
      best = node;
    }
  }
  return best;
}

void Ranker::Invalidate() {
  for (ShapeScores& table : tables_) table.valid = false;
}

}  // namespace tessera::placement
