// SPDX-License-Identifier: Apache-2.0
#include "src/cli/explanation.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "src/cli/output/text.h"

namespace tessera::cli {
namespace {

using ledger::ClusterLedger;
using placement::UnfitReason;

constexpr size_t kCandidatesShown = 5;
constexpr size_t kNearestShown = 3;

// The permanence of GPUs that the pod's constraints exclude: waiting does not help.
constexpr int kExcludedGpus = 5;

// Orders reasons: 0 is the most temporary.
int PermanenceOf(UnfitReason reason) {
  switch (reason) {
    case UnfitReason::kNothing:
      return 0;
    case UnfitReason::kNotAllContainers:
      return 1;
    case UnfitReason::kBusy:
    case UnfitReason::kHeldWhole:
    case UnfitReason::kShared:
    case UnfitReason::kCompute:
    case UnfitReason::kGpuMemory:
      return 2;
    case UnfitReason::kUnhealthy:
    case UnfitReason::kCordoned:
      return 3;
    case UnfitReason::kTooSmall:
    case UnfitReason::kTooFew:
      return 4;
    case UnfitReason::kOtherGpu:
    case UnfitReason::kOtherModel:
      return kExcludedGpus;
    default:
      return 6;
  }
}

// The smallest shortfall of any GPU on the node: (wanted - free) / wanted.
double SmallestShortfall(const placement::NodeView& node, const placement::Demand& demand,
                         const placement::NodeShortfall& shortfall) {
  double least = std::numeric_limits<double>::infinity();
  const placement::GpuDemand& gpu_demand = demand.gpu_demands[shortfall.gpu_demand_index];
  for (const placement::GpuState& gpu : node.gpus) {
    const placement::GpuShortfall of_gpu = placement::ShortfallOf(gpu, gpu_demand, demand);
    if (of_gpu.wanted <= 0) continue;
    least = std::min(least, static_cast<double>(of_gpu.wanted - of_gpu.free) /
                                static_cast<double>(of_gpu.wanted));
  }
  return least;
}

class Explainer {
 public:
  Explainer(ClusterLedger& ledger, const kube::PodObject& pod) : ledger_(ledger), object_(pod) {}

  Explanation Explain();

 private:
  void QueryLedger();
  void Evaluate(ClusterLedger::Query& query);
  void Rank(const ClusterLedger::Query& query, const std::set<std::string_view>& fitting);
  void FindNearest(const ClusterLedger::Query& query);
  Misfit Describe(const ClusterLedger::Query& query, const ledger::NodeEntry& node);

  ClusterLedger& ledger_;
  const kube::PodObject& object_;
  Explanation explanation_;
};

Explanation Explainer::Explain() {
  explanation_.pod.request.ns = object_.meta.ns;
  explanation_.pod.request.name = object_.meta.name;
  explanation_.pod.node = object_.node_name;
  explanation_.gates = object_.gates;
  explanation_.nominated_node = object_.nominated_node;
  if (object_.ended()) {
    explanation_.finding = Finding::kEnded;
    return std::move(explanation_);
  }
  const Result<ledger::PodRequest> request =
      ledger::PodRequestOf(object_, {.gpu_mem_unit = ledger_.options().gpu_mem_unit});
  if (!request.ok()) {
    explanation_.finding = Finding::kInvalidRequest;
    explanation_.invalid_reason = request.status().message();
    return std::move(explanation_);
  }
  const auto known = ledger_.pods().find(object_.meta.uid);
  if (known != ledger_.pods().end()) {
    explanation_.pod = known->second;
  } else {
    explanation_.pod.request = *request;
  }
  explanation_.request_text =
      device::RequestText(*request->devices, ledger_.options().gpu_mem_unit);
  if (!request->devices->requests_devices()) {
    explanation_.request_text = "none";
    explanation_.finding = Finding::kNoGpus;
    return std::move(explanation_);
  }
  explanation_.policy = request->devices->policy ? std::string(NameOf(*request->devices->policy))
                                                 : ledger_.options().policy;
  explanation_.finding = object_.node_name.empty() ? Finding::kWaits : Finding::kPlaced;
  if (explanation_.finding == Finding::kPlaced) {
    // Read before the pod is removed from the ledger below.
    explanation_.devices = ClusterView(ledger_).DevicesOf(explanation_.pod);
    for (DeviceView& device : explanation_.devices) device.holders.clear();
  }
  ledger_.RemovePod(object_.meta.uid);
  QueryLedger();
  ledger_.SetPod(object_);
  return std::move(explanation_);
}

void Explainer::QueryLedger() {
  for (const QuotaLine& line : QuotaLines(ledger_, object_.meta.ns)) {
    if (line.limit_milli || !line.pools.empty()) explanation_.quota.push_back(line);
  }
  Result<ClusterLedger::Query> query = ledger_.MakeQuery(object_);
  if (!query.ok()) {
    explanation_.finding = Finding::kInvalidRequest;
    explanation_.invalid_reason = query.status().message();
    return;
  }
  explanation_.summary = ledger_.Summary(*query);
  Evaluate(*query);
  if (explanation_.finding == Finding::kWaits) FindNearest(*query);
}

void Explainer::Evaluate(ClusterLedger::Query& query) {
  std::set<std::string_view> fitting;
  std::set<std::string> rejections;
  size_t allowed_nodes = 0;   // nodes that the pod's constraints and kube-scheduler allow
  size_t rejected_nodes = 0;  // those of them that the quota rejects
  const placement::Demand& demand = ledger_.cluster().demand(query.gpus_only);
  for (const auto& [name, node] : ledger_.nodes()) {
    if (node.id == placement::kNoNode) continue;
    ++explanation_.gpu_node_count;
    const placement::NodeShortfall shortfall =
        placement::ShortfallOf(ledger_.cluster().node(node.id), demand);
    if (PermanenceOf(shortfall.reason) >= kExcludedGpus) continue;
    const auto left_out = ClusterLedger::WhyLeftOut(query.request, node);
    if (left_out && name != object_.node_name) {
      if (shortfall.ok()) explanation_.left_out[left_out->reason].push_back(name);
      continue;
    }
    ++allowed_nodes;
    const Status& allowed = ledger_.CheckQuota(query, node);
    if (!allowed.ok()) {
      ++rejected_nodes;
      rejections.insert(allowed.message());
    }
    if (!shortfall.ok()) continue;
    const ledger::Verdict verdict = ledger_.Evaluate(query, name);
    if (verdict.fits) {
      fitting.insert(name);
    } else if (verdict.kind == ledger::Verdict::kQuota) {
      ++explanation_.rejected_by_quota;
      explanation_.quota_rejections.emplace(verdict.reason);
    } else {
      explanation_.other_reasons.emplace(verdict.reason);
    }
  }
  explanation_.over_quota = rejected_nodes > 0 && rejected_nodes == allowed_nodes;
  if (explanation_.over_quota) explanation_.quota_rejections = std::move(rejections);
  explanation_.fitting_count = fitting.size();
  Rank(query, fitting);
}

void Explainer::Rank(const ClusterLedger::Query& query, const std::set<std::string_view>& fitting) {
  const std::span<const float> scores = ledger_.Scores(query);
  std::vector<Candidate> all;
  for (const std::string_view name : fitting) {
    const ledger::NodeEntry& node = ledger_.nodes().find(name)->second;
    const auto left_out = ClusterLedger::WhyLeftOut(query.request, node);
    all.push_back({.node = std::string(name),
                   .exclusion_reason = left_out ? left_out->reason : "",
                   .score = scores[node.id]});
  }
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.score > b.score; });
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].rank = i + 1;
    if (i >= kCandidatesShown && all[i].node != object_.node_name) continue;
    // The score is -inf if CPU or memory are short; the report ignores both.
    const Result<placement::NodeReport> report = ledger_.Report(query, all[i].node);
    if (report.ok()) {
      for (const auto& [term, value] : report->terms) all[i].terms.emplace_back(term, value);
    }
    explanation_.candidates.push_back(all[i]);
  }
}

void Explainer::FindNearest(const ClusterLedger::Query& query) {
  const placement::Demand& demand = ledger_.cluster().demand(query.gpus_only);
  struct Near {
    std::tuple<int, int64_t, double> distance;
    const ledger::NodeEntry* node;
  };
  std::vector<Near> near;
  for (const auto& [name, node] : ledger_.nodes()) {
    if (node.id == placement::kNoNode) continue;
    const placement::NodeView view = ledger_.cluster().node(node.id);
    const placement::NodeShortfall shortfall = placement::ShortfallOf(view, demand);
    if (shortfall.ok() || ClusterLedger::WhyLeftOut(query.request, node)) continue;
    near.push_back({{PermanenceOf(shortfall.reason), shortfall.wanted - shortfall.free,
                     SmallestShortfall(view, demand, shortfall)},
                    &node});
  }
  const size_t shown = std::min(near.size(), kNearestShown);
  std::partial_sort(near.begin(), near.begin() + static_cast<ptrdiff_t>(shown), near.end(),
                    [](const Near& a, const Near& b) {
                      return std::tie(a.distance, a.node->node.name) <
                             std::tie(b.distance, b.node->node.name);
                    });
  for (size_t i = 0; i < shown; ++i) explanation_.nearest.push_back(Describe(query, *near[i].node));
}

Misfit Explainer::Describe(const ClusterLedger::Query& query, const ledger::NodeEntry& node) {
  Misfit misfit{.node = node.node.name};
  const Result<placement::NodeReport> report = ledger_.Report(query, node.node.name);
  if (!report.ok()) return misfit;
  misfit.reason = report->text;
  const Result<NodeRow> view = ClusterView(ledger_).Node(node.node.name);
  const std::vector<placement::GpuShortfall>& shortfalls =
      report->gpu_demands[report->shortfall.gpu_demand_index];
  for (size_t i = 0; view.ok() && i < view->devices.size() && i < shortfalls.size(); ++i) {
    const DeviceView& device = view->devices[i];
    std::string why = placement::TextOf(shortfalls[i]);
    if (shortfalls[i].reason == UnfitReason::kUnhealthy) why += ": " + device.unhealthy_reason;
    std::string holders;
    for (const PodShare& pod_share : device.holders) {
      holders += (holders.empty() ? " (" : ", ") + pod_share.pod->request.Text();
    }
    if (!why.empty() && !holders.empty()) why += holders + ")";
    misfit.gpus.emplace_back(device.name, why);
  }
  return misfit;
}

}  // namespace

Explanation ExplanationOf(ClusterLedger& ledger, const kube::PodObject& pod) {
  return Explainer(ledger, pod).Explain();
}

}  // namespace tessera::cli
