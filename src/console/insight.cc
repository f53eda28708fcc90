// SPDX-License-Identifier: Apache-2.0
#include "src/console/insight.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "src/console/quota_edit.h"
#include "src/console/what_if.h"
#include "src/device/dialects.h"
#include "src/device/model.h"
#include "src/ledger/pod_request.h"

namespace tessera::console {
namespace {

using ledger::ClusterLedger;

constexpr size_t kMaxNamedNodes = 20;
constexpr size_t kMaxCandidates = 10;
constexpr size_t kMaxRejectedNodes = 200;  // bounds the time of each summary
// Prefix of UIDs that no object has.
constexpr std::string_view kPreviewUid = "console-preview";
constexpr int64_t kMaxCountedReplicas = 50;
constexpr Duration kPreviewHold = std::chrono::minutes(1);  // longer than a preview takes

struct ReasonGroup {
  size_t nodes = 0;
  std::string reason;  // of the first node of the group
  std::vector<std::string> names;
};

struct Evaluation {
  size_t nodes = 0;
  std::vector<std::string> fitting;
  std::map<std::string, ReasonGroup, std::less<>> groups;  // by kind of reason
};

// Why the pod cannot go to the node, by the checks of tessera-scheduler or else of kube-scheduler;
// nullopt if it can.
std::optional<kube::Exclusion> ExclusionOf(ClusterLedger& ledger, ClusterLedger::Query& query,
                                           const ledger::NodeEntry& node) {
  const ledger::Verdict verdict = ledger.Evaluate(query, &node);
  if (!verdict.fits) return kube::Exclusion{verdict.kind, std::string(verdict.reason)};
  if (auto left_out = ClusterLedger::WhyLeftOut(query.request, node)) return left_out;
  const placement::Demand& demand = ledger.cluster().demand(query.shape);
  const placement::NodeShortfall shortfall =
      placement::ShortfallOf(ledger.cluster().node(node.id), demand);
  if (shortfall.ok()) return std::nullopt;
  return kube::Exclusion{placement::MetricLabelOf(shortfall.reason),
                         placement::TextOf(shortfall, demand, ledger.cluster())};
}

// The most frequent reason of nodes whose GPUs have room; "" if one of them fits.
std::string WhyRoomIsNotUsed(ClusterLedger& ledger, ClusterLedger::Query& query) {
  const placement::Demand& demand = ledger.cluster().demand(query.gpus_only);
  std::map<std::string, size_t> reasons;
  size_t nodes = 0;
  for (const auto& [name, node] : ledger.nodes()) {
    if (node.id == placement::kNoNode ||
        !placement::ShortfallOf(ledger.cluster().node(node.id), demand).ok())
      continue;
    const std::optional<kube::Exclusion> why = ExclusionOf(ledger, query, node);
    if (!why) return "";
    ++reasons[why->reason];
    if (++nodes >= kMaxRejectedNodes) break;
  }
  const auto most =
      std::ranges::max_element(reasons, {}, [](const auto& reason) { return reason.second; });
  return most == reasons.end() ? "" : most->first;
}

Evaluation Evaluate(ClusterLedger& ledger, ClusterLedger::Query& query) {
  Evaluation result;
  for (const auto& [name, node] : ledger.nodes()) {
    if (node.id == placement::kNoNode) continue;
    ++result.nodes;
    const std::optional<kube::Exclusion> why = ExclusionOf(ledger, query, node);
    if (!why) {
      result.fitting.push_back(name);
      continue;
    }
    ReasonGroup& group = result.groups[std::string(why->kind)];
    if (++group.nodes == 1) group.reason = why->reason;
    if (group.names.size() < kMaxNamedNodes) group.names.push_back(name);
  }
  return result;
}

// `details`: also the names of nodes, and a reason as an example, which may name other pods.
Json JsonOfGroups(const Evaluation& evaluation, bool details) {
  std::vector<std::pair<std::string, const ReasonGroup*>> sorted;
  for (const auto& [kind, group] : evaluation.groups) sorted.emplace_back(kind, &group);
  std::ranges::stable_sort(
      sorted, [](const auto& a, const auto& b) { return a.second->nodes > b.second->nodes; });
  Json groups = Json::MakeArray();
  for (const auto& [kind, group] : sorted) {
    Json json = Json::MakeObject(
        {{"kind", Json::String(kind)}, {"nodes", Json::Int(static_cast<int64_t>(group->nodes))}});
    if (details) json.Set("example", Json::String(group->reason));
    if (details) json.Set("names", Json::Strings(group->names));
    groups.Append(std::move(json));
  }
  return groups;
}

Json JsonOfCandidates(ClusterLedger& ledger, const ClusterLedger::Query& query,
                      const Evaluation& evaluation) {
  const std::span<const float> scores = ledger.Scores(query);
  std::vector<std::pair<float, std::string>> ranked;
  for (const std::string& name : evaluation.fitting) {
    ranked.emplace_back(scores[ledger.FindNode(name)->id], name);
  }
  std::ranges::stable_sort(ranked, [](const auto& a, const auto& b) { return a.first > b.first; });
  Json candidates = Json::MakeArray();
  for (const auto& [score, name] : ranked) {
    if (candidates.items().size() >= kMaxCandidates) break;
    candidates.Append(Json::String(name));
  }
  return candidates;
}

Json JsonOfQuotaLine(const std::string& ns, const std::string& model, int64_t used,
                     std::optional<int64_t> limit, const std::vector<std::string>& pools) {
  Json line = Json::MakeObject({{"namespace", Json::String(ns)},
                                {"model", Json::String(model)},
                                {"usedMilli", Json::Int(used)},
                                {"pools", Json::Strings(pools)}});
  if (limit) line.Set("limitMilli", Json::Int(*limit));
  return line;
}

// How many of `replicas` such pods fit at the same time. Assumes each on its best node, and at the
// end removes all from the ledger.
int64_t CountReplicas(ClusterLedger& ledger, kube::PodObject pod, int64_t replicas) {
  std::vector<Uid> placed;
  while (static_cast<int64_t>(placed.size()) < replicas) {
    pod.meta.uid = Uid(fmt::format("{}-{}", kPreviewUid, placed.size()));
    Result<ClusterLedger::Query> query = ledger.MakeQuery(pod);
    if (!query.ok()) break;
    const std::span<const float> scores = ledger.Scores(*query);
    const std::string* best = nullptr;
    float best_score = placement::kUnfit;
    for (const auto& [name, node] : ledger.nodes()) {
      if (node.id == placement::kNoNode || scores[node.id] <= best_score) continue;
      if (ExclusionOf(ledger, *query, node)) continue;
      best = &name;
      best_score = scores[node.id];
    }
    if (best == nullptr || !ledger.Assume(*query, *best, kPreviewHold).ok()) break;
    placed.push_back(pod.meta.uid);
  }
  for (const Uid& uid : placed) ledger.RemovePod(uid);
  return static_cast<int64_t>(placed.size());
}

// Sets requests that the API server takes from limits.
void AddDefaultRequests(Json* pod) {
  for (const char* kind : {"containers", "initContainers"}) {
    Json* list = pod->Find("spec") == nullptr ? nullptr : pod->Find("spec")->Find(kind);
    if (list == nullptr || !list->is_array()) continue;
    for (Json& container : list->items()) {
      Json* resources = container.Find("resources");
      const Json* limits = resources == nullptr ? nullptr : resources->Find("limits");
      if (limits == nullptr || !limits->is_object()) continue;
      Json requests = resources->Find("requests") == nullptr ? Json::MakeObject()
                                                             : *resources->Find("requests");
      if (!requests.is_object()) continue;
      for (const auto& [name, amount] : limits->members()) {
        if (requests.Find(name) == nullptr) requests.Set(name, amount);
      }
      resources->Set("requests", std::move(requests));
    }
  }
}

}  // namespace

std::string SummaryOf(ClusterLedger& ledger, ClusterLedger::Query& query) {
  const placement::ShortfallCounts counts =
      placement::CountShortfalls(ledger.cluster(), ledger.cluster().demand(query.gpus_only));
  const bool has_room = counts.count(placement::UnfitReason::kNothing) > 0;
  const std::string why = has_room ? WhyRoomIsNotUsed(ledger, query) : "";
  return why.empty() ? counts.Text() : fmt::format("{}, but {}", counts.TextOfRoom(), why);
}

void AddEvaluation(ClusterLedger& ledger, ClusterLedger::Query& query, bool details, Json* out) {
  const Evaluation evaluation = Evaluate(ledger, query);
  out->Set("nodes", Json::Int(static_cast<int64_t>(evaluation.nodes)));
  out->Set("fits", Json::Int(static_cast<int64_t>(evaluation.fitting.size())));
  out->Set("summary", Json::String(SummaryOf(ledger, query)));
  out->Set("groups", JsonOfGroups(evaluation, details));
  if (!details) return;
  out->Set("best", JsonOfCandidates(ledger, query, evaluation));
  out->Set("near", JsonOfNearNodes(ledger, query));
}

Result<Json> Preview(ClusterLedger& ledger, const Manifest& manifest, bool with_quota) {
  Json with_requests = manifest.pod;
  AddDefaultRequests(&with_requests);
  ASSIGN_OR_RETURN(kube::PodObject pod,
                   kube::Decode<kube::PodObject>(kube::RawObject(std::move(with_requests)),
                                                 {.constraints = true}));
  pod.meta.uid = Uid(kPreviewUid);
  pod.meta.ns = with_quota ? manifest.ns : "";  // ParseQuota rejects a quota of ""
  pod.meta.name = manifest.name;
  pod.node_name.clear();
  ASSIGN_OR_RETURN(ClusterLedger::Query query, ledger.MakeQuery(pod));
  Json out = Json::MakeObject({{"requestsGpus", Json::Bool(query.requests_gpus())}});
  out.Set("request",
          Json::String(device::RequestText(*query.request.devices, ledger.options().gpu_mem_unit)));
  AddEvaluation(ledger, query, /*details=*/false, &out);
  const int64_t replicas = std::min(ReadForm(manifest).form.replicas, kMaxCountedReplicas);
  if (query.requests_gpus() && replicas > 1) {
    out.Set("replicas", Json::Int(replicas));
    out.Set("roomFor", Json::Int(CountReplicas(ledger, pod, replicas)));
  }
  if (with_quota) out.Set("quota", Json::String(ledger.quota().TextOfLines(manifest.ns)));
  return out;
}

Json ExplainPod(ClusterLedger& ledger, const Uid& uid, bool details) {
  // A placed pod is evaluated like a new one.
  const WithoutPod without(ledger, uid);
  const ledger::PodEntry& pod = without.pod();
  Json out = Json::MakeObject({{"namespace", Json::String(pod.request.ns)},
                               {"name", Json::String(pod.request.name)},
                               {"node", Json::String(details ? pod.node : "")},
                               {"waits", Json::Bool(pod.node.empty())},
                               {"gates", Json::Strings(pod.gates())}});
  if (!pod.request.devices->requests_devices()) {
    out.Set("invalid", Json::String(pod.problem()));
    return out;
  }
  out.Set("request",
          Json::String(device::RequestText(*pod.request.devices, ledger.options().gpu_mem_unit)));
  Result<ClusterLedger::Query> query = ledger.MakeQuery(pod.request);
  if (query.ok()) {
    AddEvaluation(ledger, *query, details, &out);
    out.Set("quota", Json::String(ledger.quota().TextOfLines(pod.request.ns)));
  } else {
    out.Set("invalid", Json::String(query.status().message()));
  }
  return out;
}

Json JsonOfQuotas(const ClusterLedger& ledger,
                  const std::function<bool(const std::string&)>& visible) {
  Json lines = Json::MakeArray();
  for (const auto& [ns, use] : ledger.QuotaUse()) {
    if (!visible(ns)) continue;
    const auto& [limits, pools] = use.quota;
    if (!limits) {
      for (const auto& [model, milli] : use.used) {
        lines.Append(JsonOfQuotaLine(ns, model, milli, std::nullopt, pools));
      }
      continue;
    }
    for (const placement::QuotaLimit& line : *limits) {
      lines.Append(JsonOfQuotaLine(ns, line.model, ledger.quota().Used(ns, line.model).count(),
                                   line.gpus * kWholeGpu.count(), pools));
    }
    for (const auto& [model, milli] : UnlistedOf(use.used, *limits)) {
      lines.Append(JsonOfQuotaLine(ns, model, milli, 0, pools));
    }
  }
  return lines;
}

Json JsonOfHeld(const ClusterLedger& ledger,
                const std::function<bool(const std::string&)>& visible) {
  struct HeldSum {
    std::string ns;
    int64_t pods = 0;
    device::Share share;
  };
  std::map<std::string, HeldSum, std::less<>> by_namespace;
  for (const auto& [uid, pod] : ledger.pods()) {
    if (pod.node.empty() || !visible(pod.request.ns)) continue;
    HeldSum& held = by_namespace[pod.request.ns];
    held.ns = pod.request.ns;
    ++held.pods;
    for (const auto& [uuid, share] : ledger::SharesOf(pod)) {
      held.share.compute = held.share.compute + share.compute;
      held.share.memory = held.share.memory + share.memory;
    }
  }
  std::vector<HeldSum> sorted;
  for (auto& [ns, held] : by_namespace) sorted.push_back(std::move(held));
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [](const HeldSum& held) { return held.share.compute; });
  Json out = Json::MakeArray();
  for (const HeldSum& held : sorted) {
    out.Append(Json::MakeObject({{"namespace", Json::String(held.ns)},
                                 {"pods", Json::Int(held.pods)},
                                 {"milli", Json::Int(held.share.compute.count())},
                                 {"bytes", Json::Int(held.share.memory.count())}}));
  }
  return out;
}

Json JsonOfModels(const ClusterLedger& ledger) {
  std::set<std::string> models;
  for (const auto& [name, node] : ledger.nodes()) {
    std::string_view last_model;  // usually all GPUs of a node have the same model
    for (const device::Gpu& gpu : node.node.inventory.without_uuids().gpus) {
      if (gpu.model == last_model) continue;
      last_model = gpu.model;
      models.insert(device::ShortModel(gpu.model));
    }
  }
  return Json::Strings({models.begin(), models.end()});
}

}  // namespace tessera::console
