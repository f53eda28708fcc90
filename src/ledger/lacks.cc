// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/lacks.h"

#include <algorithm>
#include <tuple>

namespace tessera::ledger {
namespace {

using placement::NodeId;
using placement::NodeLack;

// A cluster has some hundreds at one time; those that are no longer true need not be kept for ever.
constexpr size_t kMaxReasons = 4096;

}  // namespace

bool Lacks::Less::operator()(const NodeLack& a, const NodeLack& b) const {
  const auto all = [](const NodeLack& lack) {
    return std::tie(lack.lack, lack.unresolvable, lack.ask, lack.wanted, lack.free, lack.gpu_count,
                    lack.gpus);
  };
  return all(a) < all(b);
}

Lacks::OfShape& Lacks::Find(uint64_t serial) {
  const auto known = std::find_if(shapes_.begin(), shapes_.end(),
                                  [&](const OfShape& at) { return at.serial == serial; });
  if (known != shapes_.end()) return *known;
  if (shapes_.size() < kMaxShapes) {
    OfShape& added = shapes_.emplace_back();
    added.serial = serial;
    return added;
  }
  OfShape& oldest =
      *std::min_element(shapes_.begin(), shapes_.end(),
                        [](const OfShape& a, const OfShape& b) { return a.used < b.used; });
  oldest = {.serial = serial};
  return oldest;
}

void Lacks::LookAt(NodeId node, const placement::Demand& demand, OfShape* known) const {
  const NodeLack lack = placement::WhyNot(cluster_.node(node), demand);
  if (lack.ok()) {
    known->of_nodes[node] = nullptr;
    return;
  }
  const auto [reason, is_new] = known->reasons.try_emplace(lack);
  if (is_new) {
    reason->second = {.unresolvable = lack.unresolvable,
                      .text = placement::TextOf(lack, demand, cluster_),
                      .kind = placement::IdOf(lack.lack)};
  }
  known->of_nodes[node] = &reason->second;
}

Lacks::OfShape& Lacks::Current(placement::ShapeId shape) {
  OfShape& known = Find(cluster_.shapes().serial(shape));
  const placement::Demand& demand = cluster_.demand(shape);
  known.used = ++uses_;
  changed_.clear();
  const bool all = known.of_nodes.empty() || known.reasons.size() > kMaxReasons ||
                   !cluster_.ChangesSince(known.version, &changed_);
  known.of_nodes.resize(cluster_.size());
  if (all) {
    known.reasons.clear();
    for (NodeId node = 0; node < cluster_.size(); ++node) LookAt(node, demand, &known);
  } else {
    for (const NodeId node : changed_) LookAt(node, demand, &known);
  }
  known.version = cluster_.version();
  return known;
}

}  // namespace tessera::ledger
