// SPDX-License-Identifier: Apache-2.0
// Tessera, the default policy: the node and GPU where the pod leaves the least waste in the end
// (waste_model.h), less what the place is worth to pods that are still to come (forecast.h).
//
//   score = W(n) - W(n + p) - max_j price_j · (places of class j lost) - scarcity(model) · milli(p)
//
//           + worth of the links between the GPUs of p, or what p breaks of others'
//
// All terms are thousandths of a GPU, all weights are 1; only that the GPUs of a pod of several are
// joined by NVLink outweighs all else. It knows nothing but the pods that came and went. All nodes
// are ranked with W by its closed form; the Selection::kMost best states among them are ranked
// again with the mean of closed form and roll-outs. Before the first mix is learnt, W is 0.
#include <algorithm>
#include <array>
#include <cmath>

#include "src/placement/fit.h"
#include "src/placement/policies/forecast.h"
#include "src/placement/policies/loss_groups.h"
#include "src/placement/policies/node_after.h"
#include "src/placement/policies/node_summaries.h"
#include "src/placement/policies/plain_ask.h"
#include "src/placement/policies/policies.h"
#include "src/placement/policies/selection.h"
#include "src/placement/policies/turnover.h"
#include "src/placement/policies/waste_model.h"
#include "src/placement/ranker.h"

namespace tessera::placement {
namespace {

// The first mix is learnt after so many pods, the next after twice as many.
constexpr int64_t kFirstMix = 8;
// Where pods leave, it is learnt anew after so many lives of a pod.
constexpr int64_t kLivesPerMix = 2, kLeastLife = 1024;
constexpr int kStepsPerArrival = 2;  // of a model that is being made
constexpr int64_t kArrivalsPerPrice = 16;

// What well linked GPUs are worth to a pod of several: at most half of each of them, and half of
// that at as many points for a pair as this (device::ScoreOf; five NVLinks).
constexpr float kLinkWorth = 500, kHalfLinked = 500;
// That all of them are joined by NVLink decides between nodes: it is more than all terms can differ
// by, which is 1000 for each GPU of a node in waste (either way), places and scarcity, and 500 in
// links.
constexpr float kJoined = 5000 * kMaxGpusPerNode;
// What others lose with a GPU that has a link to another idle one, where the pod needs no links.
constexpr float kPairBroken = 50;

class TerminalWaste : public Policy {
 public:
  explicit TerminalWaste(const Cluster& cluster)
      : cluster_(cluster),
        ranker_(cluster),
        forecast_(cluster),
        turnover_(cluster),
        nodes_(cluster, forecast_, turnover_) {}
  std::string_view name() const override { return "Tessera"; }

  std::optional<Decision> Choose(ShapeId shape) override;
  std::span<const float> Scores(ShapeId shape) override;
  std::optional<Pick> PickOn(ShapeId shape, NodeId node) override;
  std::vector<ScoreTerm> Explain(ShapeId shape, NodeId node) override;
  void Arrived(ShapeId shape) override;
  void Departed(ShapeId shape) override;

 private:
  struct Remembered {
    uint64_t epoch = 0, state = 0;
    Rank rank;
  };

  void Follow();
  PlainAsk Prepare(ShapeId shape);
  void Shortlist(const PlainAsk& ask);
  const Candidate* Listed(NodeId id, float ranked) const;
  Rank Evaluate(NodeId id, const PlainAsk& ask);
  float LinkWorth(NodeId id, const PlainAsk& ask) const;
  static float LinksBroken(const NodeSummary& node, int idle_taken, const PlainAsk& ask) {
    return ask.linked == 0 && node.paired ? kPairBroken * static_cast<float>(idle_taken) : 0;
  }
  Rank EvaluatePlain(const NodeSummary& node, const PlainAsk& ask);
  uint16_t GroupOf(const NodeSummary& node, int idle_taken, const PlainAsk& ask);
  NodeAfter Look(NodeId id, const NodeSummary& node, const Demand& demand) const {
    return NodeAfter::Of(cluster_.node(id), node, demand, model_.get());
  }
  float Correction(NodeId id, const PlainAsk& ask);
  float Rolled(const NodeSummary& node, const NodeKey& key, float closed);
  void Learn();
  NodeSummary& Summary(NodeId id) { return nodes_.Of(id, model_.get(), generation_); }

  const Cluster& cluster_;
  Ranker ranker_;
  Forecast forecast_;
  Turnover turnover_;
  NodeSummaries nodes_;
  LossGroups groups_;
  std::unique_ptr<WasteModel> model_, next_;  // in use; being made
  uint32_t generation_ = 0;
  int64_t arrived_ = 0, next_mix_ = kFirstMix, departed_ = 0;
  int64_t priced_ = -1;  // arrivals / kArrivalsPerPrice when prices were set
  bool new_class_ = false, new_turnover_ = false;
  std::array<Remembered, 512> remembered_;  // ranks of states, while one shape is ranked
  uint64_t epoch_ = 0;
  std::vector<Candidate> shortlist_;
  std::vector<float> scores_;
};

void TerminalWaste::Arrived(ShapeId shape) {
  new_class_ |= forecast_.Arrived(shape);
  new_turnover_ |= turnover_.Arrived();
  ++arrived_;
  if (arrived_ >= next_mix_ && !next_) {
    next_ = std::make_unique<WasteModel>(forecast_.Mix(), cluster_.model_count());
    next_mix_ = 2 * arrived_;
  }
  if (next_) Learn();
  Follow();
}

// A departing pod means that the mix may change for ever: then it is learnt at intervals.
void TerminalWaste::Departed(ShapeId shape) {
  forecast_.Departed(shape);
  turnover_.Departed();
  ++departed_;
  const auto life = std::max(static_cast<int64_t>(cluster_.pod_count()), kLeastLife);
  if (departed_ < kLivesPerMix * life) return;
  departed_ = 0;
  next_mix_ = std::min(next_mix_, arrived_ + 1);
}

void TerminalWaste::Learn() {
  for (int i = 0; i < kStepsPerArrival; ++i) {
    if (next_->Step()) continue;
    model_ = std::move(next_);
    ++generation_;
    ranker_.Invalidate();
    return;
  }
}

// Takes in what changed in the cluster, and sets prices when they are due.
void TerminalWaste::Follow() {
  bool changed = nodes_.Sync();
  if (new_class_) nodes_.CountNewClasses();
  if (new_turnover_) nodes_.TurnoverChanged();
  changed |= new_class_ | new_turnover_;
  new_class_ = new_turnover_ = false;
  if (changed || groups_.size() > LossGroups::kMany) {
    groups_.Clear();
    ranker_.Invalidate();
  }
  if (changed || priced_ != arrived_ / kArrivalsPerPrice) {
    forecast_.Price();
    groups_.Reprice();
    priced_ = arrived_ / kArrivalsPerPrice;
  }
}

// Everything up to date but the shortlist.
PlainAsk TerminalWaste::Prepare(ShapeId shape) {
  Follow();
  const PlainAsk ask(cluster_.demand(shape), forecast_.OwnPlaces(shape));
  ++epoch_;
  ranker_.Refresh(shape, [&](const NodeView&, NodeId id) { return Evaluate(id, ask); });
  return ask;
}

Rank TerminalWaste::Evaluate(NodeId id, const PlainAsk& ask) {
  if (nodes_[id].cpu < ask.demand.cpu_milli || nodes_[id].memory < ask.demand.memory.count()) {
    return {};
  }
  const float links = LinkWorth(id, ask);
  if (ask.plain && nodes_[id].plain && links == 0) {
    Remembered& remembered = remembered_[nodes_[id].state % remembered_.size()];
    if (remembered.epoch != epoch_ || remembered.state != nodes_[id].state) {
      remembered = {epoch_, nodes_[id].state, EvaluatePlain(Summary(id), ask)};
    }
    return remembered.rank;
  }
  const NodeSummary& node = Summary(id);
  const NodeAfter after = Look(id, node, ask.demand);
  if (!after.fits) return {};
  return {.score = node.closed - after.closed + links - LinksBroken(node, after.idle_taken, ask),
          .group = GroupOf(node, after.idle_taken, ask),
          .state = node.state};
}

float TerminalWaste::LinkWorth(NodeId id, const PlainAsk& ask) const {
  if (ask.linked == 0 || cluster_.node(id)->groups == nullptr) return 0;
  if (!Fits(cluster_.node(id), ask.demand)) return 0;
  const int pairs = ask.linked * (ask.linked - 1) / 2;
  const float points = static_cast<float>(LinkPoints(cluster_.node(id), ask.demand)) / pairs;
  return kLinkWorth * ask.linked * points / (points + kHalfLinked) +
         (GetsJoined(cluster_.node(id), ask.demand) ? kJoined : 0);
}

Rank TerminalWaste::EvaluatePlain(const NodeSummary& node, const PlainAsk& ask) {
  if (ask.count > 0 && !ask.demand.AllowsModel(node.model)) return {};
  int idle_taken = 0;
  float closed = 0;
  if (ask.share()) {
    const int16_t slack = BestSlack(node, ask, model_.get(), &closed);
    if (slack < 0) return {};
    idle_taken = slack == 1000;
  } else {
    if (node.idle < ask.count) return {};
    idle_taken = ask.count;
    if (model_) {
      WasteSums sums = node.sums;
      model_->Add(node.model, 1000, static_cast<float>(-ask.count), &sums);
      closed = ClosedAfter(node, ask.demand, sums, *model_);
    }
  }
  return {.score = (model_ ? node.closed - closed : 0) - LinksBroken(node, idle_taken, ask),
          .group = GroupOf(node, idle_taken, ask),
          .state = node.state};
}

uint16_t TerminalWaste::GroupOf(const NodeSummary& node, int idle_taken, const PlainAsk& ask) {
  if (!nodes_.TakesPlaces(node, idle_taken, ask.demand)) return groups_.Lossless(node.model);
  return groups_.Of(node.model, nodes_.PlacesTaken(node, idle_taken, ask));
}

void TerminalWaste::Shortlist(const PlainAsk& ask) {
  const auto charges = groups_.Charges(forecast_, ask.demand.milli());
  const auto offer = [&](NodeId id, const Rank& rank, Selection* to) {
    const float score = rank.score + charges[rank.group];
    if (score >= to->bar()) to->Offer(id, score, rank.state);
  };
  const size_t wanted = model_ ? Selection::kMost : 1;  // without a model scores are exact
  Selection selection(wanted);
  for (const auto& [id, rank] : ranker_.top()) offer(id, rank, &selection);
  // Charges only lower a score, so whoever is not at the top has less than floor().
  if (selection.bar() < ranker_.floor()) {
    selection = Selection(wanted);
    for (NodeId id = 0; id < cluster_.size(); ++id) offer(id, ranker_.rank(id), &selection);
    ranker_.Sift(selection.bar());
  }
  shortlist_.assign(selection.list().begin(), selection.list().end());
  for (Candidate& candidate : shortlist_) {
    float& correction = ranker_.note(candidate.node);
    if (std::isnan(correction)) correction = model_ ? 0.5f * Correction(candidate.node, ask) : 0;
    candidate.refined = candidate.ranked + correction;
  }
}

// Roll-outs know one model; a node that mixes them has the closed form alone.
float TerminalWaste::Rolled(const NodeSummary& node, const NodeKey& key, float closed) {
  return node.model == kNoModel && key.gpus > 0 ? closed : model_->RollOuts(key);
}

// What the roll-outs say that the placement saves, less what the closed form says.
float TerminalWaste::Correction(NodeId id, const PlainAsk& ask) {
  NodeSummary& node = Summary(id);
  if (node.rolled < 0) node.rolled = Rolled(node, node.key, node.closed);
  float closed;
  NodeKey key;
  if (ask.plain && node.plain && ask.share()) {
    const int16_t slack = BestSlack(node, ask, model_.get(), &closed);
    key = node.key.With(slack, static_cast<int16_t>(slack - ask.milli),
                        node.cpu - ask.demand.cpu_milli, node.memory - ask.demand.memory.count());
  } else {
    const NodeAfter after = Look(id, node, ask.demand);
    closed = after.closed;
    key = after.key;
  }
  return (node.rolled - Rolled(node, key, closed)) - (node.closed - closed);
}

std::optional<Decision> TerminalWaste::Choose(ShapeId shape) {
  Shortlist(Prepare(shape));
  if (shortlist_.empty()) return std::nullopt;
  const Candidate* best = &shortlist_[0];
  for (const Candidate& other : shortlist_) {
    if (other.refined > best->refined ||
        (other.refined == best->refined && other.node < best->node)) {
      best = &other;
    }
  }
  const Demand& demand = cluster_.demand(shape);
  NodeAfter after = Look(best->node, Summary(best->node), demand);
  PreferLinked(cluster_.node(best->node), demand, &after.pick);
  return Decision{.node = best->node, .pick = after.pick, .score = best->refined};
}

// Refined scores of the shortlist; nobody else is above the lowest of them.
std::span<const float> TerminalWaste::Scores(ShapeId shape) {
  Shortlist(Prepare(shape));
  const auto charges = groups_.Charges(forecast_, cluster_.demand(shape).milli());
  float lowest = std::numeric_limits<float>::infinity(), bar = lowest;
  for (const Candidate& candidate : shortlist_) {
    // Without a model it lists one of several that may be as good, and which one says nothing.
    if (model_) lowest = std::min(lowest, candidate.refined);
    bar = std::min(bar, candidate.ranked);
  }
  lowest = std::nextafter(lowest, kUnfit);
  const auto ranked = ranker_.scores();
  const auto groups = ranker_.groups();
  scores_.resize(ranked.size());
  for (NodeId id = 0; id < scores_.size(); ++id) {
    const float score = ranked[id] + charges[groups[id]];
    scores_[id] = std::min(score, lowest);
    if (score < bar || score == kUnfit) continue;
    if (const Candidate* listed = Listed(id, score)) scores_[id] = listed->refined;
  }
  return scores_;
}

// Which candidate stands for the node: one in the same state with the same score.
const Candidate* TerminalWaste::Listed(NodeId id, float ranked) const {
  for (const Candidate& listed : shortlist_) {
    if (listed.ranked == ranked && listed.state == nodes_[id].state) return &listed;
  }
  return nullptr;
}

std::optional<Pick> TerminalWaste::PickOn(ShapeId shape, NodeId node) {
  Prepare(shape);
  NodeAfter after = Look(node, Summary(node), cluster_.demand(shape));
  if (!after.fits) return std::nullopt;
  PreferLinked(cluster_.node(node), cluster_.demand(shape), &after.pick);
  return after.pick;
}

// The parts of which Scores made the score. Their sum is the score but for rounding.
std::vector<ScoreTerm> TerminalWaste::Explain(ShapeId shape, NodeId id) {
  const float score = Scores(shape)[id];
  if (score == kUnfit) return {};
  const PlainAsk ask(cluster_.demand(shape), forecast_.OwnPlaces(shape));
  const Rank rank = ranker_.rank(id);
  const ModelId model = groups_.ModelOf(rank.group);
  const float charge = groups_.Charges(forecast_, ask.demand.milli())[rank.group];
  const int idle_taken = Look(id, Summary(id), ask.demand).idle_taken;
  const double links = LinkWorth(id, ask) - LinksBroken(Summary(id), idle_taken, ask);
  const float ranked = rank.score + charge;
  const Candidate* listed = Listed(id, ranked);
  const double waste = rank.score - links + (listed ? listed->refined - ranked : 0);
  std::vector<ScoreTerm> terms;
  // One number: as two, what is idle with the pod would be told below zero.
  terms.emplace_back(model_ ? "waste avoided" : "room left on the GPU", waste);
  terms.emplace_back("places of large pods", -groups_.ReservationOf(rank.group, forecast_));
  terms.emplace_back("scarce model",
                     -forecast_.scarcity(model) * static_cast<double>(ask.demand.milli()));
  terms.emplace_back("links", links);
  // It may not be better than the worst that was looked at twice.
  if (!listed && score < ranked) terms.emplace_back("not looked at twice", score - ranked);
  return terms;
}

}  // namespace

std::unique_ptr<Policy> MakeTerminalWaste(Cluster& cluster, const PolicyOptions&) {
  return std::make_unique<TerminalWaste>(cluster);
}

}  // namespace tessera::placement
