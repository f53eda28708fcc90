// SPDX-License-Identifier: Apache-2.0
// Inside the room: why nodes have no room for a demand, kept from one question to the next. Only
// nodes that have changed since are looked at again, and each reason is put into words once, so
// that a question about 5,000 nodes is a look into a table for each.
//
// Threads: one. Ownership: the cluster outlives it. Cost: the first question about a shape is a
// pass over all nodes; a pointer for each node and shape is kept, of the kMaxShapes asked about
// last.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/explain.h"

namespace tessera::ledger {

class Lacks {
 public:
  static constexpr size_t kMaxShapes = 64;

  struct Reason {
    bool unresolvable = false;
    std::string text;
    std::string_view kind;  // placement::IdOf
  };

  explicit Lacks(const placement::Cluster& cluster) : cluster_(cluster) {}

  // Null where there is room. Valid until the cluster changes or another shape is asked about.
  const Reason* Of(placement::ShapeId shape, placement::NodeId node) {
    if (last_ == nullptr || last_->serial != cluster_.shapes().serial(shape) ||
        last_->version != cluster_.version()) {
      last_ = &Current(shape);
    }
    return last_->of_nodes[node];
  }

 private:
  struct Less {
    bool operator()(const placement::NodeLack& a, const placement::NodeLack& b) const;
  };
  struct OfShape {
    uint64_t serial = 0;   // of the shape, whose id may come to mean another
    uint64_t version = 0;  // of the cluster that it tells of
    uint64_t used = 0;     // larger is later
    std::vector<const Reason*> of_nodes;
    std::map<placement::NodeLack, Reason, Less> reasons;
  };
  OfShape& Current(placement::ShapeId shape);
  OfShape& Find(uint64_t serial);
  void LookAt(placement::NodeId node, const placement::Demand& demand, OfShape* known) const;

  const placement::Cluster& cluster_;
  std::deque<OfShape> shapes_;
  OfShape* last_ = nullptr;
  uint64_t uses_ = 0;
  std::vector<placement::NodeId> changed_;
};

}  // namespace tessera::ledger
