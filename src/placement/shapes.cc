// SPDX-License-Identifier: Apache-2.0
#include "src/placement/shapes.h"

namespace tessera::placement {

ShapeId Shapes::Intern(const Demand& demand) {
  if (const auto known = ids_.find(demand); known != ids_.end()) {
    Entry& entry = entries_[known->second];
    if (entry.refs == 0) idle_.splice(idle_.end(), idle_, entry.idle);
    return known->second;
  }
  ShapeId shape;
  if (idle_.size() >= kIdleShapes) {
    shape = idle_.front();
    idle_.pop_front();
    ids_.erase(ids_.find(*entries_[shape].demand));
  } else {
    shape = static_cast<ShapeId>(entries_.size());
    entries_.emplace_back();
  }
  Entry& entry = entries_[shape];
  entry.demand = &ids_.emplace(demand, shape).first->first;
  entry.serial = next_serial_++;
  entry.idle = idle_.insert(idle_.end(), shape);
  return shape;
}

void Shapes::Ref(ShapeId shape) {
  Entry& entry = entries_[shape];
  if (entry.refs++ == 0) idle_.erase(entry.idle);
}

void Shapes::Unref(ShapeId shape) {
  Entry& entry = entries_[shape];
  if (--entry.refs == 0) entry.idle = idle_.insert(idle_.end(), shape);
}

}  // namespace tessera::placement
