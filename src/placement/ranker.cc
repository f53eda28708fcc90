// SPDX-License-Identifier: Apache-2.0
#include "src/placement/ranker.h"

#include <algorithm>

namespace tessera::placement {

Ranker::ShapeScores& Ranker::ScoresOf(ShapeId shape) {
  if (shape >= table_number_by_shape_.size())
    table_number_by_shape_.resize(cluster_.shapes().size(), 0);
  const uint64_t serial = cluster_.shapes().serial(shape);
  if (table_number_by_shape_[shape] == 0) {
    size_t slot = tables_.size();
    if (slot < kMaxShapes) {
      tables_.emplace_back();
    } else {
      const auto oldest = std::min_element(
          tables_.begin(), tables_.end(), [](auto& a, auto& b) { return a.last_use < b.last_use; });
      slot = static_cast<size_t>(oldest - tables_.begin());
      std::replace(table_number_by_shape_.begin(), table_number_by_shape_.end(),
                   static_cast<uint32_t>(slot + 1), 0u);
    }
    table_number_by_shape_[shape] = static_cast<uint32_t>(slot + 1);
    tables_[slot].valid = false;
  }
  ShapeScores& table = tables_[table_number_by_shape_[shape] - 1];
  if (table.serial != serial) {
    table.serial = serial;
    table.valid = false;
  }
  table.last_use = ++use_count_;
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
