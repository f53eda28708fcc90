// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/unfit_reasons.h"

#include <algorithm>
#include <tuple>

namespace tessera::ledger {
namespace {

using placement::NodeId;
using placement::NodeShortfall;

// A cluster has some hundreds of reasons at a time. All reasons are dropped and computed again when
// there are more than this number.
constexpr size_t kMaxReasons = 4096;

// kube-scheduler puts the number of nodes before each reason. So a reason that begins with a number
// gets words before it: "1 node(s) without room: 2 GPUs ...".
std::string ForScheduler(std::string reason) {
  const bool has_number = !reason.empty() && reason[0] >= '0' && reason[0] <= '9';
  return has_number ? "node(s) without room: " + reason : reason;
}

}  // namespace

bool UnfitReasons::Less::operator()(const NodeShortfall& a, const NodeShortfall& b) const {
  const auto all = [](const NodeShortfall& shortfall) {
    return std::tie(shortfall.reason, shortfall.unresolvable, shortfall.gpu_demand_index,
                    shortfall.wanted, shortfall.free, shortfall.gpu_count, shortfall.gpus);
  };
  return all(a) < all(b);
}

UnfitReasons::ShapeReasons& UnfitReasons::FindOrAdd(uint64_t serial) {
  const auto known = std::find_if(shapes_.begin(), shapes_.end(),
                                  [&](const ShapeReasons& at) { return at.serial == serial; });
  if (known != shapes_.end()) return *known;
  if (shapes_.size() < kMaxShapes) {
    ShapeReasons& added = shapes_.emplace_back();
    added.serial = serial;
    return added;
  }
  ShapeReasons& oldest = *std::min_element(
      shapes_.begin(), shapes_.end(),
      [](const ShapeReasons& a, const ShapeReasons& b) { return a.last_use < b.last_use; });
  oldest = {.serial = serial};
  return oldest;
}

void UnfitReasons::UpdateNode(NodeId node, const placement::Demand& demand,
                              ShapeReasons* shape_reasons) const {
  const NodeShortfall shortfall = placement::ShortfallOf(cluster_.node(node), demand);
  if (shortfall.ok()) {
    shape_reasons->by_node[node] = nullptr;
    return;
  }
  const auto [reason, is_new] = shape_reasons->reasons.try_emplace(shortfall);
  if (is_new) {
    reason->second = {.unresolvable = shortfall.unresolvable,
                      .text = ForScheduler(placement::TextOf(shortfall, demand, cluster_)),
                      .kind = placement::MetricLabelOf(shortfall.reason)};
  }
  shape_reasons->by_node[node] = &reason->second;
}

UnfitReasons::ShapeReasons& UnfitReasons::UpdatedReasons(placement::ShapeId shape) {
  ShapeReasons& shape_reasons = FindOrAdd(cluster_.shapes().serial(shape));
  const placement::Demand& demand = cluster_.demand(shape);
  shape_reasons.last_use = ++uses_;
  changed_.clear();
  const bool all = shape_reasons.by_node.empty() || shape_reasons.reasons.size() > kMaxReasons ||
                   !cluster_.ChangesSince(shape_reasons.version, &changed_);
  shape_reasons.by_node.resize(cluster_.size());
  if (all) {
    shape_reasons.reasons.clear();
    for (NodeId node = 0; node < cluster_.size(); ++node) UpdateNode(node, demand, &shape_reasons);
  } else {
    for (const NodeId node : changed_) UpdateNode(node, demand, &shape_reasons);
  }
  shape_reasons.version = cluster_.version();
  return shape_reasons;
}

}  // namespace tessera::ledger
