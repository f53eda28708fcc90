// SPDX-License-Identifier: Apache-2.0
// Numbers demands, so that pods and caches refer to them cheaply. A number is valid while a pod
// uses it or while it is among the last kIdleShapes that were used. Later it may name another
// demand, which then has another `serial`.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "src/placement/demand.h"

namespace tessera::placement {

using ShapeId = uint32_t;

class Shapes {
 public:
  // Exceeds the number of pod templates that any cluster uses at a time. Bounds the memory that a
  // tenant can occupy by requesting new amounts again and again.
  static constexpr size_t kIdleShapes = 4096;

  // REQUIRES: Validate(demand) is OK.
  ShapeId Intern(const Demand& demand);
  const Demand& demand(ShapeId shape) const { return *entries_[shape].demand; }
  // Changes when the id names another demand.
  uint64_t serial(ShapeId shape) const { return entries_[shape].serial; }
  size_t size() const { return entries_.size(); }  // ids are below it

  // Call when a pod starts or stops using the shape.
  void Ref(ShapeId shape);
  void Unref(ShapeId shape);

 private:
  struct Entry {
    const Demand* demand = nullptr;  // the key in ids_
    uint64_t serial = 0;
    size_t refs = 0;
    std::list<ShapeId>::iterator idle;  // valid while refs is 0
  };

  std::unordered_map<Demand, ShapeId, DemandHash> ids_;
  std::vector<Entry> entries_;
  std::list<ShapeId> idle_;  // least recently used first
  uint64_t next_serial_ = 1;
};

}  // namespace tessera::placement
