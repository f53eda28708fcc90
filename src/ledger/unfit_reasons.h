// SPDX-License-Identifier: Apache-2.0
// Caches why nodes have no room for a demand. Only nodes that have changed since the last query are
// evaluated again, and each reason is formatted once, so a query about 5,000 nodes costs one table
// lookup for each. Included only in src/ledger.
//
// Threads: one. Ownership: the cluster outlives the cache. Cost: the first query about a shape is a
// pass over all nodes. The cache keeps a pointer for each node and shape, for the kMaxShapes shapes
// that were queried last.
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

class UnfitReasons {
 public:
  static constexpr size_t kMaxShapes = 64;

  struct Reason {
    bool unresolvable = false;
    std::string text;
    std::string_view kind;  // placement::MetricLabelOf
  };

  explicit UnfitReasons(const placement::Cluster& cluster) : cluster_(cluster) {}

  // Null if the node has room. Valid until the cluster changes or another shape is queried.
  const Reason* ReasonFor(placement::ShapeId shape, placement::NodeId node) {
    if (last_ == nullptr || last_->serial != cluster_.shapes().serial(shape) ||
        last_->version != cluster_.version()) {
      last_ = &UpdatedReasons(shape);
    }
    return last_->by_node[node];
  }

 private:
  struct Less {
    bool operator()(const placement::NodeShortfall& a, const placement::NodeShortfall& b) const;
  };
  struct ShapeReasons {
    uint64_t serial = 0;    // of the shape, because shape ids are reused
    uint64_t version = 0;   // of the cluster when `by_node` was computed
    uint64_t last_use = 0;  // value of uses_ at the last query
    std::vector<const Reason*> by_node;
    std::map<placement::NodeShortfall, Reason, Less> reasons;
  };
  ShapeReasons& UpdatedReasons(placement::ShapeId shape);
  ShapeReasons& FindOrAdd(uint64_t serial);
  void UpdateNode(placement::NodeId node, const placement::Demand& demand,
                  ShapeReasons* shape_reasons) const;

  const placement::Cluster& cluster_;
  std::deque<ShapeReasons> shapes_;
  ShapeReasons* last_ = nullptr;
  uint64_t uses_ = 0;
  std::vector<placement::NodeId> changed_;
};

}  // namespace tessera::ledger
