// SPDX-License-Identifier: Apache-2.0
#include "src/cli/explanation.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "src/cli/text.h"

namespace tessera::cli {
namespace {

using ledger::ClusterLedger;
using placement::Lack;

constexpr size_t kCandidatesShown = 5;
constexpr size_t kNearestShown = 3;

// Orders lacks from temporary to permanent.
int PermanenceOf(Lack lack) {
  switch (lack) {
    case Lack::kNothing:
      return 0;
    case Lack::kTogether:
      return 1;
    case Lack::kBusy:
    case Lack::kHeldWhole:
    case Lack::kShared:
    case Lack::kCompute:
    case Lack::kGpuMemory:
      return 2;
    case Lack::kUnhealthy:
    case Lack::kCordoned:
      return 3;
    case Lack::kTooSmall:
    case Lack::kTooFew:
      return 4;
    case Lack::kOtherGpu:
    case Lack::kOtherModel:
      return 5;
    default:
      return 6;
  }
}

// The smallest lack of any GPU, as a fraction of the demand on it.
double GapOf(const placement::NodeView& node, const placement::Demand& demand,
             const placement::NodeLack& lack) {
  double least = std::numeric_limits<double>::infinity();
  const placement::GpuAsk& ask = demand.asks[lack.ask];
  for (const placement::GpuState& gpu : node.gpus) {
    const placement::GpuLack one = placement::WhyNot(gpu, ask, demand);
    if (one.wanted <= 0) continue;
    least = std::min(least,
                     static_cast<double>(one.wanted - one.free) / static_cast<double>(one.wanted));
  }
  return least;
}

class Explainer {
 public:
  Explainer(ClusterLedger& ledger, const FactsOf& facts, const kube::PodObject& pod)
      : ledger_(ledger), facts_(facts), object_(pod) {}

  Explanation Explain();

 private:
  void QueryLedger();
  void Judge(ClusterLedger::Question& question);
  void Rank(const ClusterLedger::Question& question, const std::set<std::string_view>& fitting);
  void FindNearest(const ClusterLedger::Question& question);
  Misfit Describe(const ClusterLedger::Question& question, const ledger::NodeEntry& node);

  ClusterLedger& ledger_;
  const FactsOf& facts_;
  const kube::PodObject& object_;
  Explanation found_;
};

Explanation Explainer::Explain() {
  found_.pod.ask.ns = object_.meta.ns;
  found_.pod.ask.name = object_.meta.name;
  found_.pod.node = object_.node_name;
  found_.gates = object_.gates;
  found_.nominated_node = object_.nominated_node;
  if (object_.ended()) {
    found_.finding = Finding::kEnded;
    return std::move(found_);
  }
  const Result<ledger::PodAsk> ask =
      ledger::PodAskOf(object_, {.gpu_mem_unit = ledger_.options().gpu_mem_unit});
  if (!ask.ok()) {
    found_.finding = Finding::kUnreadable;
    found_.unreadable = ask.status().message();
    return std::move(found_);
  }
  const auto known = ledger_.pods().find(object_.meta.uid);
  if (known != ledger_.pods().end()) found_.pod = known->second;
  found_.pod.ask = *ask;
  found_.asks = RequestText(ask->request, ledger_.options().gpu_mem_unit);
  if (!ask->request.asks_for_devices()) {
    found_.finding = Finding::kNoGpus;
    return std::move(found_);
  }
  found_.policy =
      ask->request.policy ? std::string(NameOf(*ask->request.policy)) : ledger_.options().policy;
  found_.finding = object_.node_name.empty() ? Finding::kWaits : Finding::kPlaced;
  if (found_.finding == Finding::kPlaced) {
    // Read before the pod is removed from the ledger below.
    found_.devices = View(ledger_, facts_).DevicesOf(found_.pod);
    for (DeviceView& device : found_.devices) device.holders.clear();
  }
  ledger_.RemovePod(object_.meta.uid);
  QueryLedger();
  ledger_.SetPod(object_);
  return std::move(found_);
}

void Explainer::QueryLedger() {
  for (const QuotaLine& line : QuotaLines(ledger_, object_.meta.ns)) {
    if (line.limit_milli || !line.pools.empty()) found_.quota.push_back(line);
  }
  Result<ClusterLedger::Question> question = ledger_.Ask(object_);
  if (!question.ok()) {
    found_.finding = Finding::kUnreadable;
    found_.unreadable = question.status().message();
    return;
  }
  found_.summary = ledger_.Summary(*question);
  Judge(*question);
  if (found_.finding == Finding::kWaits) FindNearest(*question);
}

void Explainer::Judge(ClusterLedger::Question& question) {
  std::set<std::string_view> fitting;
  const placement::Demand& demand = ledger_.cluster().demand(question.gpus_only);
  for (const auto& [name, node] : ledger_.nodes()) {
    if (node.id == placement::kNoNode) continue;
    ++found_.nodes;
    if (!placement::WhyNot(ledger_.cluster().node(node.id), demand).ok()) continue;
    const ledger::Verdict verdict = ledger_.Judge(question, name);
    if (verdict.fits) {
      fitting.insert(name);
    } else {
      ++found_.refused_by_quota;
      found_.quota_refusals.emplace(verdict.reason);
    }
  }
  found_.fitting = fitting.size();
  Rank(question, fitting);
}

void Explainer::Rank(const ClusterLedger::Question& question,
                     const std::set<std::string_view>& fitting) {
  const std::span<const float> scores = ledger_.Scores(question);
  std::vector<Candidate> all;
  for (const std::string_view name : fitting) {
    const ledger::NodeEntry& node = ledger_.nodes().find(name)->second;
    all.push_back({.node = std::string(name),
                   .note = node.unschedulable ? " (cordoned)"
                           : node.ready       ? ""
                                              : " (not ready)",
                   .score = scores[node.id]});
  }
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.score > b.score; });
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].rank = i + 1;
    if (i >= kCandidatesShown && all[i].node != object_.node_name) continue;
    // The score is -inf if CPU or memory are short; the report ignores both.
    const Result<placement::NodeReport> report = ledger_.Report(question, all[i].node);
    if (report.ok()) {
      for (const auto& [term, value] : report->terms) all[i].terms.emplace_back(term, value);
    }
    found_.candidates.push_back(all[i]);
  }
}

void Explainer::FindNearest(const ClusterLedger::Question& question) {
  const placement::Demand& demand = ledger_.cluster().demand(question.gpus_only);
  struct Near {
    std::tuple<int, int64_t, double> distance;
    const ledger::NodeEntry* node;
  };
  std::vector<Near> near;
  for (const auto& [name, node] : ledger_.nodes()) {
    if (node.id == placement::kNoNode) continue;
    const placement::NodeView view = ledger_.cluster().node(node.id);
    const placement::NodeLack lack = placement::WhyNot(view, demand);
    if (lack.ok()) continue;
    near.push_back(
        {{PermanenceOf(lack.lack), lack.wanted - lack.free, GapOf(view, demand, lack)}, &node});
  }
  const size_t shown = std::min(near.size(), kNearestShown);
  std::partial_sort(near.begin(), near.begin() + static_cast<ptrdiff_t>(shown), near.end(),
                    [](const Near& a, const Near& b) {
                      return std::tie(a.distance, a.node->node.name) <
                             std::tie(b.distance, b.node->node.name);
                    });
  for (size_t i = 0; i < shown; ++i) found_.nearest.push_back(Describe(question, *near[i].node));
}

Misfit Explainer::Describe(const ClusterLedger::Question& question, const ledger::NodeEntry& node) {
  Misfit misfit{.node = node.node.name};
  const Result<placement::NodeReport> report = ledger_.Report(question, node.node.name);
  if (!report.ok()) return misfit;
  misfit.reason = report->text;
  const Result<NodeView> view = View(ledger_, facts_).Node(node.node.name);
  const std::vector<placement::GpuLack>& lacks = report->asks[report->lack.ask];
  for (size_t i = 0; view.ok() && i < view->devices.size() && i < lacks.size(); ++i) {
    const DeviceView& device = view->devices[i];
    std::string why = placement::TextOf(lacks[i]);
    if (lacks[i].lack == Lack::kUnhealthy) why += ": " + device.unhealthy;
    std::string holders;
    for (const Holding& holding : device.holders) {
      holders += (holders.empty() ? " (" : ", ") + holding.pod->ask.Text();
    }
    if (!why.empty() && !holders.empty()) why += holders + ")";
    misfit.gpus.emplace_back(device.name, why);
  }
  return misfit;
}

}  // namespace

Explanation ExplanationOf(ClusterLedger& ledger, const FactsOf& facts, const kube::PodObject& pod) {
  return Explainer(ledger, facts, pod).Explain();
}

}  // namespace tessera::cli
