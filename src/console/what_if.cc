// SPDX-License-Identifier: Apache-2.0
#include "src/console/what_if.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/console/insight.h"
#include "src/console/json_of.h"
#include "src/device/dialects.h"

namespace tessera::console {
namespace {

using ledger::ClusterLedger;
using ledger::NodeEntry;
using ledger::PodEntry;

constexpr size_t kMostReports = 200;  // nodes looked at for the nearest
constexpr size_t kMostNear = 6;
constexpr size_t kMostTries = 400;
constexpr size_t kMostMoves = 5;

bool IsGpuResource(std::string_view resource) {
  return resource == names::kResourceGpu || resource == names::kResourceGpuMem ||
         resource == names::kResourceVcudaCore || resource == names::kResourceVcudaMemory ||
         resource.starts_with(names::kResourceMigPrefix);
}

bool RequestsGpus(const kube::Container& container) {
  return std::ranges::any_of(container.limits,
                             [](const auto& limit) { return IsGpuResource(limit.first); });
}

// Takes a pod out of the ledger while it lives.
class WithoutPod {
 public:
  WithoutPod(ClusterLedger& ledger, const kube::PodObject& pod) : ledger_(ledger), pod_(pod) {
    ledger_.RemovePod(pod_.meta.uid);
  }
  ~WithoutPod() { ledger_.SetPod(pod_); }
  WithoutPod(const WithoutPod&) = delete;
  WithoutPod& operator=(const WithoutPod&) = delete;

 private:
  ClusterLedger& ledger_;
  const kube::PodObject& pod_;
};

bool MayTake(const NodeEntry& node) {
  return node.id != placement::kNoNode && node.ready && !node.unschedulable;
}

struct NearNode {
  std::string name;
  placement::NodeReport report;
  int64_t free = 0;  // GPUs with room
};

// Whether a GPU is short of something for every GPU demand; its reason for the first.
placement::GpuShortfall ShortfallAt(const placement::NodeReport& report, size_t gpu) {
  placement::GpuShortfall first;
  for (const auto& demand : report.gpu_demands) {
    if (gpu >= demand.size()) continue;
    if (demand[gpu].reason == placement::UnfitReason::kNothing) return {};
    if (first.reason == placement::UnfitReason::kNothing) first = demand[gpu];
  }
  return first;
}

Json JsonOfNear(const ClusterLedger& ledger, const NearNode& near) {
  const NodeEntry& node = *ledger.FindNode(near.name);
  const auto gpus = ledger.cluster().node(node.id).gpus;
  const uint64_t chosen = near.report.pick ? near.report.pick->all() : 0;
  Json list = Json::MakeArray();
  for (size_t i = 0; i < gpus.size(); ++i) {
    const placement::GpuShortfall shortfall = ShortfallAt(near.report, i);
    const bool short_of = shortfall.reason != placement::UnfitReason::kNothing;
    list.Append(Json::MakeObject(
        {{"name", Json::String(fmt::format("{}", i))},
         {"reason", Json::String(short_of ? placement::MetricLabelOf(shortfall.reason) : "")},
         {"text", Json::String(placement::TextOf(shortfall))},
         {"chosen", Json::Bool(i < 64 && ((chosen >> i) & 1) != 0)}}));
  }
  return Json::MakeObject({{"node", Json::String(near.name)},
                           {"fits", Json::Bool(near.report.shortfall.ok())},
                           {"text", Json::String(near.report.text)},
                           {"gpus", std::move(list)}});
}

struct Move {
  kube::PodObject pod;
  std::string node;
  int64_t milli = 0;
};

// Whether the pod fits on the node as the ledger is now.
bool FitsOn(ClusterLedger& ledger, const kube::PodObject& pod, const NodeEntry& node) {
  Result<ClusterLedger::Query> query = ledger.MakeQuery(pod);
  return query.ok() && ledger.Evaluate(*query, &node).fits;
}

// Whether no eviction helps on this node.
bool IsHopeless(ClusterLedger& ledger, const kube::PodObject& pod, const NodeEntry& node) {
  Result<ClusterLedger::Query> query = ledger.MakeQuery(pod);
  if (!query.ok()) return true;
  const ledger::Verdict verdict = ledger.Evaluate(*query, &node);
  return verdict.fits || verdict.unresolvable;
}

std::map<std::string, std::vector<const PodEntry*>> PodsByNode(const ClusterLedger& ledger) {
  std::map<std::string, std::vector<const PodEntry*>> by_node;
  for (const auto& [uid, pod] : ledger.pods()) {
    if (!pod.node.empty() && !pod.deleting) by_node[pod.node].push_back(&pod);
  }
  return by_node;
}

int64_t MilliOf(const PodEntry& pod) {
  int64_t milli = 0;
  for (const auto& [uuid, share] : ledger::SharesOf(pod)) milli += share.compute.count();
  return milli;
}

// Where the moved pod would fit, except on the node that it leaves.
void AddTargets(ClusterLedger& ledger, const Move& move, Json* out) {
  const WithoutPod without(ledger, move.pod);
  kube::PodObject anew = move.pod;
  anew.node_name.clear();
  int64_t others = 0;
  std::string best;
  float best_score = 0;
  if (Result<ClusterLedger::Query> query = ledger.MakeQuery(anew); query.ok()) {
    std::vector<const NodeEntry*> fitting;
    for (const auto& [name, node] : ledger.nodes()) {
      if (name == move.node || !MayTake(node) || !ledger.Evaluate(*query, &node).fits) continue;
      fitting.push_back(&node);
    }
    others = static_cast<int64_t>(fitting.size());
    const std::span<const float> scores = ledger.Scores(*query);
    for (const NodeEntry* node : fitting) {
      if (!best.empty() && scores[node->id] <= best_score) continue;
      best = node->node.name;
      best_score = scores[node->id];
    }
  }
  out->Set("otherNodes", Json::Int(others));
  out->Set("best", Json::String(best));
}

Json JsonOfMove(ClusterLedger& ledger, const Move& move) {
  const PodEntry* entry = ledger.FindPod(move.pod.meta.ns, move.pod.meta.name);
  Json out = Json::MakeObject(
      {{"namespace", Json::String(move.pod.meta.ns)},
       {"name", Json::String(move.pod.meta.name)},
       {"node", Json::String(move.node)},
       {"request", Json::String(entry == nullptr ? ""
                                                 : RequestTextOf(entry->request.devices,
                                                                 ledger.options().gpu_mem_unit))},
       {"milli", Json::Int(move.milli)}});
  AddTargets(ledger, move, &out);
  return out;
}

// All single pods whose end makes room, of as many as may be tried.
std::vector<Move> FindMoves(ClusterLedger& ledger, const kube::PodObject& pod,
                            const FindPodObject& find_pod, bool* complete) {
  std::vector<Move> moves;
  size_t tries = 0;
  // Copies of names and amounts: trying changes the entries.
  struct MovablePod {
    std::string ns, name;
    int64_t milli;
  };
  std::map<std::string, std::vector<MovablePod>> movable;
  for (const auto& [node, pods] : PodsByNode(ledger)) {
    for (const PodEntry* held : pods) {
      movable[node].push_back({held->request.ns, held->request.name, MilliOf(*held)});
    }
  }
  for (const auto& [name, pods] : movable) {
    const NodeEntry* node = ledger.FindNode(name);
    if (node == nullptr || !MayTake(*node) || IsHopeless(ledger, pod, *node)) continue;
    for (const MovablePod& pod_to_move : pods) {
      if (++tries > kMostTries) {
        *complete = false;
        return moves;
      }
      const kube::PodObject* held = find_pod(pod_to_move.ns, pod_to_move.name);
      if (held == nullptr) continue;
      const WithoutPod without(ledger, *held);
      if (FitsOn(ledger, pod, *node)) moves.push_back({*held, name, pod_to_move.milli});
    }
  }
  return moves;
}

}  // namespace

Json JsonOfNearNodes(ClusterLedger& ledger, ClusterLedger::Query& query) {
  std::vector<NearNode> near;
  size_t reports = 0;
  for (const auto& [name, node] : ledger.nodes()) {
    if (!MayTake(node) || ++reports > kMostReports) continue;
    Result<placement::NodeReport> report = ledger.Report(query, name);
    if (!report.ok()) continue;
    NearNode one{name, *std::move(report)};
    for (size_t i = 0; i < ledger.cluster().node(node.id).gpus.size(); ++i) {
      if (ShortfallAt(one.report, i).reason == placement::UnfitReason::kNothing) ++one.free;
    }
    near.push_back(std::move(one));
  }
  std::ranges::stable_sort(near, [](const NearNode& a, const NearNode& b) {
    const bool a_fits = a.report.shortfall.ok(), b_fits = b.report.shortfall.ok();
    if (a_fits != b_fits) return a_fits;
    if (a_fits) return a.report.score.value_or(0) > b.report.score.value_or(0);
    return a.free > b.free;
  });
  Json out = Json::MakeArray();
  for (const NearNode& one : near) {
    if (out.items().size() >= kMostNear) break;
    out.Append(JsonOfNear(ledger, one));
  }
  return out;
}

Json MeasureRoom(ClusterLedger& ledger, const kube::PodObject& pod, const FindPodObject& find_pod) {
  bool complete = true;
  std::vector<Move> moves = FindMoves(ledger, pod, find_pod, &complete);
  std::ranges::stable_sort(moves, [](const Move& a, const Move& b) { return a.milli < b.milli; });
  Json list = Json::MakeArray();
  for (const Move& move : moves) {
    if (list.items().size() >= kMostMoves) break;
    list.Append(JsonOfMove(ledger, move));
  }
  return Json::MakeObject({{"pods", std::move(list)}, {"complete", Json::Bool(complete)}});
}

Result<WhatIf> ParseWhatIf(const Json& body) {
  WhatIf what_if;
  if (const Json* request = body.Find("request"); request != nullptr && request->is_object()) {
    WhatIf::ChangedRequest parsed{.whole = request->BoolAt("whole").value_or(true),
                                  .gpus = request->IntAt("gpus").value_or(0),
                                  .hundredths = request->IntAt("hundredths").value_or(0),
                                  .memory_blocks = request->IntAt("memoryBlocks").value_or(0)};
    if (parsed.whole ? parsed.gpus < 1 || parsed.gpus > 1024
                     : parsed.hundredths < 1 || parsed.hundredths > 99 ||
                           parsed.memory_blocks < 1 || parsed.memory_blocks > 4096) {
      return Error(Code::kInvalidArgument,
                   "want 1 to 1024 whole GPUs, or 1 to 99 hundredths of one and 1 to 4096 blocks "
                   "of 256 MiB");
    }
    what_if.request = parsed;
  }
  if (const Json* model = body.Find("model"); model != nullptr && model->is_string()) {
    what_if.model = model->string_value();
  }
  if (const Json* without = body.Find("without"); without != nullptr && without->is_object()) {
    what_if.without_ns = without->StringAt("namespace").value_or("");
    what_if.without_name = without->StringAt("name").value_or("");
  }
  return what_if;
}

Result<kube::PodObject> ChangedPod(const kube::PodObject& pod, const WhatIf& what_if) {
  kube::PodObject changed = pod;
  changed.node_name.clear();
  if (what_if.model) {
    changed.meta.annotations.erase(std::string(names::kAnnotationGpuModels));
    if (!what_if.model->empty()) {
      changed.meta.annotations[std::string(names::kAnnotationGpuModels)] = *what_if.model;
    }
  }
  if (!what_if.request) return changed;
  const auto requesting = std::ranges::count_if(changed.containers, RequestsGpus);
  if (requesting != 1) {
    return Error(Code::kFailedPrecondition,
                 "{} containers of the pod request GPUs: only a request of one container can be "
                 "changed here",
                 requesting);
  }
  kube::Container& container = *std::ranges::find_if(changed.containers, RequestsGpus);
  for (StringMap* map : {&container.limits, &container.requests}) {
    std::erase_if(*map, [](const auto& item) { return IsGpuResource(item.first); });
    if (what_if.request->whole) {
      (*map)[std::string(names::kResourceGpu)] = fmt::format("{}", what_if.request->gpus);
      continue;
    }
    (*map)[std::string(names::kResourceVcudaCore)] = fmt::format("{}", what_if.request->hundredths);
    (*map)[std::string(names::kResourceVcudaMemory)] =
        fmt::format("{}", what_if.request->memory_blocks);
  }
  return changed;
}

Result<Json> AnswerWhatIf(ClusterLedger& ledger, const kube::PodObject& pod, const WhatIf& what_if,
                          const FindPodObject& find_pod, bool details) {
  ASSIGN_OR_RETURN(const kube::PodObject changed, ChangedPod(pod, what_if));
  const WithoutPod without_itself(ledger, pod);
  std::optional<WithoutPod> without_other;
  if (!what_if.without_name.empty()) {
    const kube::PodObject* other = find_pod(what_if.without_ns, what_if.without_name);
    if (other == nullptr) {
      return Error(Code::kNotFound, "there is no pod {}/{}", what_if.without_ns,
                   what_if.without_name);
    }
    if (other->meta.uid != pod.meta.uid) without_other.emplace(ledger, *other);
  }
  ASSIGN_OR_RETURN(ClusterLedger::Query query, ledger.MakeQuery(changed));
  Json out = Json::MakeObject(
      {{"request",
        Json::String(RequestTextOf(query.request.devices, ledger.options().gpu_mem_unit))}});
  AddEvaluation(ledger, query, details, &out);
  return out;
}

}  // namespace tessera::console
