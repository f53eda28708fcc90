// SPDX-License-Identifier: Apache-2.0
// Tessera, the default policy, chooses the node and GPUs where the pod adds the least terminal
// waste (waste_model.h), less the value of the capacity to future pods (forecast.h).
//
//   score = [W(n) - W(n + p)] - Σ_j price_j · (slots of class j lost) - scarcity(model) · milli(p)
//           + links(p on n)
//
// All terms are thousandths of a GPU with weight 1. One exception: joining the GPUs of a pod by
// NVLink outweighs all other terms (kNvLinkBonus). Every node on which the pod fits is evaluated.
// The policy knows only the pods that arrived and departed. Before the first mix is learned, W is
// the sum of the free parts of GPUs in use.
#include <algorithm>
#include <bit>
#include <cmath>

#include "src/placement/fit.h"
#include "src/placement/policies/forecast.h"
#include "src/placement/policies/loss_groups.h"
#include "src/placement/policies/node_summaries.h"
#include "src/placement/policies/policies.h"
#include "src/placement/policies/turnover.h"
#include "src/placement/policies/waste_model.h"
#include "src/placement/ranker.h"

namespace tessera::placement {
namespace {

// The first mix is learned after this many pods, the next one after twice as many.
constexpr int64_t kFirstMixArrivals = 8;
// If pods depart, the mix is learned again after this many pod lifetimes.
constexpr int64_t kLifetimesPerMix = 2, kMinLifetime = 1024;
constexpr int kStepsPerArrival = 2;  // of building the next model

// Value of good links for a pod of several GPUs, in thousandths per GPU: at most kMaxLinkValue. It
// is half of that if each pair has kHalfValueLinkScore (device::ScoreOf; five NVLinks).
constexpr float kMaxLinkValue = 500, kHalfValueLinkScore = 500;
// The NVLink weight: added if NVLink joins all GPUs of the pod, because data exchange over PCIe is
// several times slower. It exceeds the largest possible difference of all other terms: for each GPU
// of a node 1000 in waste (in either direction), slots and scarcity, and 500 in links.
constexpr float kNvLinkBonus = 5000 * kMaxGpusPerNode;
// The cost of each GPU of an idle linked pair that a pod takes without need for links.
constexpr float kPairLoss = 50;

// A demand with the facts that evaluating each node needs.
struct DemandFacts {
  DemandFacts(const Demand& demand, const Slots& own) : demand(demand), own(own) {
    for (const GpuDemand& gpu_demand : demand.gpu_demands) {
      if (gpu_demand.whole() && gpu_demand.count > 1)
        linked_gpus = std::max(linked_gpus, gpu_demand.count);
    }
    is_share = demand.gpu_demands.size() == 1 && demand.gpu_demands[0].count == 1 &&
               !demand.gpu_demands[0].whole();
  }

  const Demand& demand;
  Slots own;            // slots that are reserved for this demand
  int linked_gpus = 0;  // GPUs of its largest demand for two or more whole GPUs; 0 without one
  bool is_share = false;
};

float PartlyUsedMilli(const NodeKey& key) {
  int sum = 0;
  for (const int slack : key.slack) sum += slack % 1000;
  return static_cast<float>(sum);
}

// A trial placement of the demand on a node.
struct TrialPlacement {
  Pick pick;
  NodeKey key;         // of the node with the demand
  int idle_taken = 0;  // GPUs
  float waste = 0;     // of the node with the demand
};

class TesseraPolicy : public Policy {
 public:
  TesseraPolicy(const Cluster& cluster, const PolicyParts& excluded_parts)
      : cluster_(cluster),
        excluded_parts_(excluded_parts),
        ranker_(cluster),
        forecast_(cluster),
        turnover_(cluster),
        nodes_(cluster, forecast_, turnover_) {}
  std::string_view name() const override { return kDefaultPolicy; }

  std::optional<Placement> Choose(ShapeId shape) override;
  std::span<const float> Scores(ShapeId shape) override;
  std::optional<Pick> PickOn(ShapeId shape, NodeId node) override;
  std::vector<ScoreTerm> Explain(ShapeId shape, NodeId node) override;
  void OnArrival(ShapeId shape) override;
  void OnDeparture(ShapeId shape) override;

 private:
  void BuildNextModel();
  double UnhostableFraction(const std::vector<MixPod>& mix) const;
  void ApplyChanges();
  void Refresh(ShapeId shape);
  Rank Evaluate(NodeId id, const DemandFacts& facts);
  bool TryNode(NodeId id, const DemandFacts& facts, TrialPlacement* trial);
  bool TryShare(NodeId id, const Demand& demand, TrialPlacement* trial);
  float Waste(const NodeKey& key) { return model_ ? model_->Waste(key) : PartlyUsedMilli(key); }
  float LinkValue(NodeId id, const DemandFacts& facts, int idle_taken) const;

  const Cluster& cluster_;
  const PolicyParts excluded_parts_;
  Ranker ranker_;
  Forecast forecast_;
  Turnover turnover_;
  NodeSummaries nodes_;
  LossGroups groups_;
  std::unique_ptr<WasteModel> model_, next_model_;  // in use; being built
  int64_t arrivals_ = 0, next_mix_at_ = kFirstMixArrivals, departures_ = 0;
  int64_t priced_at_ = -1;  // arrivals_ / kArrivalsPerPrice when prices were last set
  bool turnover_changed_ = false;
  std::vector<float> scores_;
};

void TesseraPolicy::OnArrival(ShapeId shape) {
  forecast_.OnArrival(shape);
  if (!excluded_parts_.test(kTurnover)) turnover_changed_ |= turnover_.OnArrival();
  ++arrivals_;
  if (arrivals_ >= next_mix_at_ && !next_model_) {
    std::vector<int64_t> device_memory = forecast_.device_memory();
    device_memory.resize(cluster_.model_count(), 0);
    std::vector<MixPod> mix = forecast_.Mix();
    const double unhostable = UnhostableFraction(mix);
    next_model_ = std::make_unique<WasteModel>(std::move(mix), std::move(device_memory), unhostable,
                                               excluded_parts_);
    next_mix_at_ = 2 * arrivals_;
  }
  if (next_model_) BuildNextModel();
  ApplyChanges();
}

// The fraction of the pods that could fill the GPUs but will find no CPU or memory. 0 if pods
// depart, or if pods of this mix use up the GPUs first.
double TesseraPolicy::UnhostableFraction(const std::vector<MixPod>& mix) const {
  if (forecast_.pods_depart()) return 0;
  double weight = 0, cpu = 0, memory = 0, all_cpu = 0, all_memory = 0;
  for (const MixPod& pod : mix) {
    weight += pod.weight;
    cpu += pod.weight * static_cast<double>(pod.cpu_milli);
    memory += pod.weight * static_cast<double>(pod.memory);
  }
  for (NodeId id = 0; id < cluster_.size(); ++id) {
    const NodeView node = cluster_.node(id);
    if (!node->present || node.gpus.empty()) continue;
    all_cpu += static_cast<double>(node->cpu_total);
    all_memory += static_cast<double>(node->memory_total);
  }
  const double gpus = weight * forecast_.mean_milli() / static_cast<double>(cluster_.total_milli());
  const double host = std::max(cpu / all_cpu, memory / all_memory);
  return host > gpus ? 1 - gpus / host : 0;
}

// If pods depart, the mix may keep changing, so it is learned again at intervals.
void TesseraPolicy::OnDeparture(ShapeId shape) {
  forecast_.OnDeparture(shape);
  turnover_.OnDeparture();
  ++departures_;
  const auto lifetime = std::max(static_cast<int64_t>(cluster_.pod_count()), kMinLifetime);
  if (departures_ < kLifetimesPerMix * lifetime) return;
  departures_ = 0;
  next_mix_at_ = std::min(next_mix_at_, arrivals_ + 1);
}

void TesseraPolicy::BuildNextModel() {
  for (int i = 0; i < kStepsPerArrival; ++i) {
    if (next_model_->Step()) continue;
    model_ = std::move(next_model_);
    ranker_.Invalidate();
    return;
  }
}

// Applies changes of the cluster, and sets prices when they are due.
void TesseraPolicy::ApplyChanges() {
  bool changed = nodes_.Sync();
  if (turnover_changed_) nodes_.OnTurnoverChanged();
  changed |= std::exchange(turnover_changed_, false);
  if (changed || groups_.size() > LossGroups::kMaxGroups) {
    groups_.Clear();
    ranker_.Invalidate();
  }
  if (changed || priced_at_ != arrivals_ / kArrivalsPerPrice) {
    forecast_.Price(excluded_parts_);
    groups_.OnPricesChanged();
    priced_at_ = arrivals_ / kArrivalsPerPrice;
  }
}

void TesseraPolicy::Refresh(ShapeId shape) {
  ApplyChanges();
  const DemandFacts facts(cluster_.demand(shape), forecast_.OwnSlots(shape));
  ranker_.Refresh(shape, [&](const NodeView&, NodeId id) { return Evaluate(id, facts); });
}

Rank TesseraPolicy::Evaluate(NodeId id, const DemandFacts& facts) {
  TrialPlacement trial;
  if (!TryNode(id, facts, &trial)) return {};
  const NodeSummary& node = nodes_[id];
  const uint16_t group =
      nodes_.TakesSlots(node, trial.idle_taken, facts.demand)
          ? groups_.GroupOf(node.key.model,
                            nodes_.SlotsTaken(node, trial.idle_taken, facts.demand, facts.own))
          : groups_.LosslessGroupOf(node.key.model);
  return {.score = Waste(node.key) - trial.waste + LinkValue(id, facts, trial.idle_taken),
          .group = group};
}

// Tries the demand on the node: puts a share on the GPU where it adds the least terminal waste
// (among equals the tightest GPU), and all other GPU demands on the tightest GPUs. Returns false if
// the demand does not fit.
bool TesseraPolicy::TryNode(NodeId id, const DemandFacts& facts, TrialPlacement* trial) {
  const NodeSummary& node = nodes_[id];
  const Demand& demand = facts.demand;
  if (node.cpu_free < demand.cpu_milli || node.memory_free < demand.memory.count()) return false;
  if (facts.is_share) return TryShare(id, demand, trial);
  const NodeView view = cluster_.node(id);
  if (!PickTightest(view, demand, &trial->pick)) return false;
  std::array<int16_t, kMaxGpusPerNode> slack;
  SlackAfter(view, demand, trial->pick, slack.data());
  for (size_t i = 0; i < view.gpus.size(); ++i) {
    slack[i] = std::max<int16_t>(slack[i], 0);
    trial->idle_taken += view.gpus[i].slack == 1000 && (trial->pick.all() >> i & 1);
  }
  trial->key =
      NodeKey::Of(view->model, node.cpu_free - demand.cpu_milli,
                  node.memory_free - demand.memory.count(), slack.data(), view.gpus.size());
  trial->waste = Waste(trial->key);
  return true;
}

bool TesseraPolicy::TryShare(NodeId id, const Demand& demand, TrialPlacement* trial) {
  const NodeSummary& node = nodes_[id];
  const NodeView view = cluster_.node(id);
  const GpuDemand& gpu_demand = demand.gpu_demands[0];
  const GpuFit fits(gpu_demand, demand);
  std::array<int16_t, kMaxGpusPerNode> slack;
  for (size_t i = 0; i < view.gpus.size(); ++i) slack[i] = view.gpus[i].slack;
  const auto tried = [&](size_t i) {
    const GpuState& gpu = view.gpus[i];
    for (size_t j = 0; j < i; ++j) {
      const GpuState& other = view.gpus[j];
      if (other.slack == gpu.slack && other.total_bytes == gpu.total_bytes && fits(other))
        return true;
    }
    return false;
  };
  float best = std::numeric_limits<float>::infinity();
  int best_slack = 0;
  for (size_t i = 0; i < view.gpus.size(); ++i) {
    const GpuState& gpu = view.gpus[i];
    if (!fits(gpu) || tried(i)) continue;
    slack[i] = static_cast<int16_t>(std::max(gpu.slack - SlackTakenFrom(gpu, gpu_demand), 0));
    const NodeKey key =
        NodeKey::Of(view->model, node.cpu_free - demand.cpu_milli,
                    node.memory_free - demand.memory.count(), slack.data(), view.gpus.size());
    slack[i] = gpu.slack;
    const float waste = Waste(key);
    if (waste > best || (waste == best && gpu.slack >= best_slack)) continue;
    best = waste;
    best_slack = gpu.slack;
    trial->pick = {.masks = {uint64_t{1} << i}};
    trial->key = key;
    trial->idle_taken = gpu.slack == 1000;
  }
  trial->waste = best;
  return best < std::numeric_limits<float>::infinity();
}

float TesseraPolicy::LinkValue(NodeId id, const DemandFacts& facts, int idle_taken) const {
  if (excluded_parts_.test(kLinks)) return 0;
  const NodeView view = cluster_.node(id);
  if (view->groups == nullptr) return 0;
  if (facts.linked_gpus == 0) {
    return nodes_[id].idle_gpus_paired ? -kPairLoss * static_cast<float>(idle_taken) : 0;
  }
  const int pairs = facts.linked_gpus * (facts.linked_gpus - 1) / 2;
  const float score_per_pair = static_cast<float>(BestLinkScore(view, facts.demand)) / pairs;
  return kMaxLinkValue * facts.linked_gpus * score_per_pair /
             (score_per_pair + kHalfValueLinkScore) +
         (GetsAllPairsLinked(view, facts.demand) ? kNvLinkBonus : 0);
}

std::span<const float> TesseraPolicy::Scores(ShapeId shape) {
  Refresh(shape);
  const auto charges = groups_.Charges(forecast_, cluster_.demand(shape));
  const auto ranked = ranker_.scores();
  const auto groups = ranker_.groups();
  scores_.resize(ranked.size());
  for (NodeId id = 0; id < scores_.size(); ++id) scores_[id] = ranked[id] + charges[groups[id]];
  return scores_;
}

std::optional<Placement> TesseraPolicy::Choose(ShapeId shape) {
  const auto scores = Scores(shape);
  const auto best = std::ranges::max_element(scores);
  if (best == scores.end() || *best == kUnfit) return std::nullopt;
  const auto node = static_cast<NodeId>(best - scores.begin());
  return Placement{.node = node, .pick = *PickOn(shape, node), .score = *best};
}

std::optional<Pick> TesseraPolicy::PickOn(ShapeId shape, NodeId node) {
  ApplyChanges();
  const Demand& demand = cluster_.demand(shape);
  TrialPlacement trial;
  if (!TryNode(node, DemandFacts(demand, {}), &trial)) return std::nullopt;
  PreferLinked(cluster_.node(node), demand, &trial.pick);
  return trial.pick;
}

// The terms of the score that Scores computes; their sum is the score up to rounding.
std::vector<ScoreTerm> TesseraPolicy::Explain(ShapeId shape, NodeId id) {
  if (Scores(shape)[id] == kUnfit) return {};
  const DemandFacts facts(cluster_.demand(shape), {});
  TrialPlacement trial;
  (void)TryNode(id, facts, &trial);
  const Rank ranked{ranker_.scores()[id], ranker_.groups()[id]};
  const float links = LinkValue(id, facts, trial.idle_taken);
  const ModelId model = groups_.ModelOf(ranked.group);
  return {{"waste avoided", ranked.score - links},
          {"slots of large pods", -groups_.ReservationOf(ranked.group, forecast_)},
          {"scarce model", -forecast_.scarcity(model) *
                               static_cast<double>(forecast_.MilliOn(facts.demand, model))},
          {"links", links}};
}

}  // namespace

std::unique_ptr<Policy> MakeTessera(Cluster& cluster, const PolicyOptions& options) {
  return std::make_unique<TesseraPolicy>(cluster, options.excluded_parts);
}

}  // namespace tessera::placement
