// SPDX-License-Identifier: Apache-2.0
#include "src/placement/gang.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "src/placement/explain.h"

namespace tessera::placement {
namespace {

// Decides on the next pod of a shape; nullopt if it fits on no node.
using ChoosePlace = std::function<std::optional<Placement>(ShapeId)>;
using NodeFilter = std::function<bool(NodeId)>;

class GangPlacer {
 public:
  GangPlacer(Cluster& cluster, Policy& policy, const Gang& gang)
      : cluster_(cluster), policy_(policy), gang_(gang) {}

  GangResult Place();

 private:
  Status Check() const;
  void OrderMembers();
  bool PlaceInLayout();
  bool PlaceOnOneNode();
  bool PlaceInOnePool();
  // Tries to place all pods with `choose`. On failure removes the placed pods, and keeps the reason
  // of the attempt that placed the most pods. `node` is set if the attempt uses only this node.
  bool Attempt(const ChoosePlace& choose, NodeId node = kNoNode);
  // Records why the attempt failed, if it placed more pods than all earlier attempts.
  void RecordFailure(size_t member, int placed_count, NodeId node);
  std::optional<Placement> BestOf(ShapeId shape, const NodeFilter& allowed);
  bool IsUsed(NodeId node) const;
  bool HasRoomForSum(NodeId node) const;

  Cluster& cluster_;
  Policy& policy_;
  const Gang& gang_;
  std::vector<size_t> order_;  // members, hardest first
  int pod_count_ = 0;
  GangResult result_;
};

Status GangPlacer::Check() const {
  int64_t pods = 0;
  for (const GangMember& member : gang_.members) {
    if (member.count < 1) {
      return Error(Code::kInvalidArgument, "invalid gang member of {} pods: want at least 1",
                   member.count);
    }
    pods += member.count;
  }
  if (pods == 0 || pods > kMaxGangPods) {
    return Error(Code::kInvalidArgument, "invalid gang of {} pods: want 1 to {}", pods,
                 kMaxGangPods);
  }
  return {};
}

void GangPlacer::OrderMembers() {
  const auto weight = [&](size_t member) {
    const Demand& demand = cluster_.demand(gang_.members[member].shape);
    int largest = 0;
    for (const GpuDemand& gpu_demand : demand.gpu_demands) {
      if (gpu_demand.whole()) largest = std::max(largest, gpu_demand.count);
    }
    return std::tuple(largest, demand.milli(), demand.gpus(), demand.cpu_milli, demand.memory);
  };
  for (size_t i = 0; i < gang_.members.size(); ++i) {
    order_.push_back(i);
    pod_count_ += gang_.members[i].count;
  }
  std::ranges::stable_sort(order_, [&](size_t a, size_t b) { return weight(a) > weight(b); });
}

GangResult GangPlacer::Place() {
  if (const Status status = Check(); !status.ok()) {
    result_.reason = status.message();
    return result_;
  }
  OrderMembers();
  result_.placed = PlaceInLayout();
  if (result_.placed) {
    result_.reason.clear();
    result_.placed_count = pod_count_;
    std::ranges::stable_sort(result_.pods, {}, &GangPod::member);
  }
  return std::move(result_);
}

bool GangPlacer::PlaceInLayout() {
  const auto anywhere = [&](ShapeId shape) { return policy_.Choose(shape); };
  const auto prefer = [&](const NodeFilter& allowed) {
    return [this, allowed, anywhere](ShapeId shape) {
      const auto decision = BestOf(shape, allowed);
      return decision || gang_.strict ? decision : anywhere(shape);
    };
  };
  switch (gang_.layout) {
    case GangLayout::kOneNode:
      if (PlaceOnOneNode()) return true;
      return !gang_.strict && Attempt(prefer([this](NodeId node) { return IsUsed(node); }));
    case GangLayout::kOnePool:
      if (PlaceInOnePool()) return true;
      return !gang_.strict && Attempt(anywhere);
    case GangLayout::kApart:
      return Attempt(prefer([this](NodeId node) { return !IsUsed(node); }));
    case GangLayout::kAnywhere:
      break;
  }
  return Attempt(anywhere);
}

bool GangPlacer::PlaceOnOneNode() {
  const std::span<const float> scores = policy_.Scores(gang_.members[order_[0]].shape);
  std::vector<std::pair<float, NodeId>> nodes;  // a copy: placing a pod invalidates the scores
  for (NodeId node = 0; node < scores.size(); ++node) {
    if (scores[node] != kUnfit && HasRoomForSum(node)) nodes.emplace_back(-scores[node], node);
  }
  std::ranges::sort(nodes);
  for (const auto& [score, node] : nodes) {
    const auto on_node = [&, node = node](ShapeId shape) -> std::optional<Placement> {
      const auto pick = policy_.PickOn(shape, node);
      if (!pick) return std::nullopt;
      return Placement{.node = node, .pick = *pick};
    };
    if (Attempt(on_node, node)) return true;
  }
  if (!nodes.empty()) {
    result_.reason = fmt::format("no node has room for all {} pods; {} placed the most: {}",
                                 pod_count_, result_.placed_count, result_.reason);
    return false;
  }
  RecordFailure(order_[0], 0, kNoNode);
  result_.reason =
      fmt::format("no node has room for all {} pods in sum; {}", pod_count_, result_.reason);
  return false;
}

bool GangPlacer::PlaceInOnePool() {
  const std::span<const float> scores = policy_.Scores(gang_.members[order_[0]].shape);
  std::map<std::string_view, float> best;
  std::vector<std::string_view> pool_of(scores.size());
  for (NodeId node = 0; node < scores.size(); ++node) {
    pool_of[node] = cluster_.pool(node);
    if (scores[node] == kUnfit) continue;
    float& highest = best.emplace(pool_of[node], kUnfit).first->second;
    highest = std::max(highest, scores[node]);
  }
  std::vector<std::pair<float, std::string_view>> pools;
  for (const auto& [pool, score] : best) pools.emplace_back(-score, pool);
  std::ranges::sort(pools);
  for (const auto& [score, pool] : pools) {
    const NodeFilter inside = [&, pool = pool](NodeId node) { return pool_of[node] == pool; };
    if (Attempt([&](ShapeId shape) { return BestOf(shape, inside); })) return true;
  }
  if (pools.empty()) RecordFailure(order_[0], 0, kNoNode);
  result_.reason = fmt::format("no pool has room for all {} pods; {}", pod_count_, result_.reason);
  return false;
}

bool GangPlacer::Attempt(const ChoosePlace& choose, NodeId node) {
  result_.pods.clear();
  for (const size_t member : order_) {
    for (int i = 0; i < gang_.members[member].count; ++i) {
      const ShapeId shape = gang_.members[member].shape;
      const std::optional<Placement> decision = choose(shape);
      if (!decision) {
        RecordFailure(member, static_cast<int>(result_.pods.size()), node);
        for (; !result_.pods.empty(); result_.pods.pop_back()) {
          TESSERA_CHECK(cluster_.Remove(result_.pods.back().pod).ok());
        }
        return false;
      }
      // A policy never returns a placement that does not fit.
      const PodId pod = *cluster_.Place(shape, decision->node, decision->pick);
      result_.pods.push_back({member, pod, *decision});
    }
  }
  return true;
}

void GangPlacer::RecordFailure(size_t member, int placed_count, NodeId node) {
  if (!result_.reason.empty() && placed_count <= result_.placed_count) return;
  const Demand& demand = cluster_.demand(gang_.members[member].shape);
  result_.failed_member = member;
  result_.placed_count = placed_count;
  const std::string shortfall =
      node == kNoNode
          ? CountShortfalls(cluster_, demand).Text()
          : fmt::format("{}: {}", cluster_.name(node),
                        TextOf(ShortfallOf(cluster_.node(node), demand), demand, cluster_));
  result_.reason = fmt::format("pod {} of {}: {}", placed_count + 1, pod_count_, shortfall);
}

std::optional<Placement> GangPlacer::BestOf(ShapeId shape, const NodeFilter& allowed) {
  const std::span<const float> scores = policy_.Scores(shape);
  Placement best{.score = kUnfit};
  for (NodeId node = 0; node < scores.size(); ++node) {
    if (scores[node] > best.score && allowed(node)) {
      best.node = node;
      best.score = scores[node];
    }
  }
  if (best.node == kNoNode) return std::nullopt;
  best.pick = policy_.PickOn(shape, best.node).value();
  return best;
}

bool GangPlacer::IsUsed(NodeId node) const {
  return std::ranges::any_of(result_.pods,
                             [&](const GangPod& pod) { return pod.placement.node == node; });
}

// Whether the node's free resources cover the sum of all pods, so that an attempt is worthwhile.
bool GangPlacer::HasRoomForSum(NodeId node) const {
  const NodeView view = cluster_.node(node);
  int64_t cpu = view->cpu_free, memory = view->memory_free, milli = 0;
  for (const GpuState& gpu : view.gpus) {
    if (gpu.healthy) milli += std::max(gpu.free_milli, 0);
  }
  for (const GangMember& member : gang_.members) {
    const Demand& demand = cluster_.demand(member.shape);
    cpu -= demand.cpu_milli * member.count;
    memory -= demand.memory.count() * member.count;
    milli -= demand.milli() * member.count;
  }
  return cpu >= 0 && memory >= 0 && milli >= 0;
}

// The sum of all pods' demands; nullopt if no single pod could request it.
std::optional<Demand> SumOf(const Cluster& cluster, const Gang& gang) {
  Demand all;
  GpuDemand gpus{.count = 0, .milli = kWholeGpu};
  for (const GangMember& member : gang.members) {
    const Demand& demand = cluster.demand(member.shape);
    if (&member == &gang.members.front()) all.models = demand.models;
    if (demand.models != all.models) return std::nullopt;
    all.cpu_milli += demand.cpu_milli * member.count;
    all.memory += demand.memory * member.count;
    for (const GpuDemand& gpu_demand : demand.gpu_demands) {
      if (!gpu_demand.whole() || gpu_demand.kind != kNoMigProfile) return std::nullopt;
      gpus.count += gpu_demand.count * member.count;
      gpus.bytes = std::max(gpus.bytes, gpu_demand.bytes);
    }
  }
  if (gpus.count == 0) return std::nullopt;
  all.gpu_demands.push_back(gpus);
  return all;
}

}  // namespace

std::vector<ShapeId> ArrivalsOf(Cluster& cluster, const Gang& gang) {
  if (gang.layout == GangLayout::kOneNode) {
    if (const auto all = SumOf(cluster, gang)) {
      // A node has at most kMaxGpusPerNode GPUs, so Intern rejects a larger sum.
      if (const auto shape = cluster.Intern(*all); shape.ok()) return {*shape};
    }
  }
  std::vector<ShapeId> shapes;
  for (const GangMember& member : gang.members) {
    shapes.insert(shapes.end(), static_cast<size_t>(std::max(member.count, 0)), member.shape);
  }
  return shapes;
}

GangResult PlaceGang(Cluster& cluster, Policy& policy, const Gang& gang) {
  return GangPlacer(cluster, policy, gang).Place();
}

}  // namespace tessera::placement
