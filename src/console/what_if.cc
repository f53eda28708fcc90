// SPDX-License-Identifier: Apache-2.0
#include "src/console/what_if.h"

#include <algorithm>
#include <set>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/console/insight.h"
#include "src/device/dialects.h"

namespace tessera::console {
namespace {

using ledger::ClusterLedger;
using ledger::NodeEntry;
using ledger::PodEntry;
using ledger::PodRequest;

constexpr size_t kMaxReports = 200;  // nodes that JsonOfNearNodes compares
constexpr size_t kMaxListedNodes = 6;
constexpr size_t kMaxTries = 400;
constexpr size_t kMaxMoves = 5;

// Whether the node has GPUs and kube-scheduler could choose it for this pod.
bool IsCandidate(const PodRequest& request, const NodeEntry& node) {
  return node.id != placement::kNoNode && !ClusterLedger::WhyLeftOut(request, node);
}

struct CandidateNode {
  std::string name;
  placement::NodeReport report;
  int64_t free = 0;         // GPUs with room
  std::string not_allowed;  // why the pod may not use the GPUs with room, such as a quota

  bool fits() const { return report.shortfall.ok() && not_allowed.empty(); }
};

// Why the GPU fits none of the GPU demands: the shortfall for the first. kNothing if it fits one of
// them.
placement::GpuShortfall ShortfallAt(const placement::NodeReport& report, size_t gpu) {
  placement::GpuShortfall first;
  for (const auto& demand : report.gpu_demands) {
    if (gpu >= demand.size()) continue;
    if (demand[gpu].reason == placement::UnfitReason::kNothing) return {};
    if (first.reason == placement::UnfitReason::kNothing) first = demand[gpu];
  }
  return first;
}

Json JsonOfCandidate(const ClusterLedger& ledger, const CandidateNode& candidate) {
  const NodeEntry& node = *ledger.FindNode(candidate.name);
  const auto gpus = ledger.cluster().node(node.id).gpus;
  const uint64_t chosen = candidate.report.pick ? candidate.report.pick->all() : 0;
  Json list = Json::MakeArray();
  for (size_t i = 0; i < gpus.size(); ++i) {
    const placement::GpuShortfall shortfall = ShortfallAt(candidate.report, i);
    const bool short_of = shortfall.reason != placement::UnfitReason::kNothing;
    list.Append(Json::MakeObject(
        {{"name", Json::String(fmt::format("{}", i))},
         {"reason", Json::String(short_of ? placement::MetricLabelOf(shortfall.reason) : "")},
         {"text", Json::String(placement::TextOf(shortfall))},
         {"chosen", Json::Bool(i < 64 && ((chosen >> i) & 1) != 0)}}));
  }
  return Json::MakeObject(
      {{"node", Json::String(candidate.name)},
       {"fits", Json::Bool(candidate.fits())},
       {"text", Json::String(candidate.not_allowed.empty() ? candidate.report.text
                                                           : candidate.not_allowed)},
       {"gpus", std::move(list)}});
}

// A pod that would make room by leaving `node`.
struct Move {
  Uid uid;
  std::string node;
  int64_t milli_gpu = 0;
};

// Whether the pod fits on the node in the present state of the ledger.
bool FitsOn(ClusterLedger& ledger, const PodRequest& request, const NodeEntry& node) {
  Result<ClusterLedger::Query> query = ledger.MakeQuery(request);
  return query.ok() && ledger.Evaluate(*query, &node).fits;
}

// Whether the node need not be tried: the pod fits without an eviction, or no eviction helps.
bool CanSkip(ClusterLedger& ledger, const PodRequest& request, const NodeEntry& node) {
  Result<ClusterLedger::Query> query = ledger.MakeQuery(request);
  if (!query.ok()) return true;
  const ledger::Verdict verdict = ledger.Evaluate(*query, &node);
  return verdict.fits || verdict.unresolvable;
}

int64_t MilliGpuOf(const PodEntry& pod) {
  int64_t milli_gpu = 0;
  for (const auto& [uuid, share] : ledger::SharesOf(pod)) milli_gpu += share.compute.count();
  return milli_gpu;
}

// Adds how many other nodes fit the moved pod, and the best of them.
void AddTargets(ClusterLedger& ledger, const Move& move, Json* out) {
  const WithoutPod without(ledger, move.uid);
  int64_t others = 0;
  std::string best;
  float best_score = 0;
  if (Result<ClusterLedger::Query> query = ledger.MakeQuery(without.pod().request); query.ok()) {
    std::vector<const NodeEntry*> fitting;
    for (const auto& [name, node] : ledger.nodes()) {
      if (name == move.node || !IsCandidate(query->request, node) ||
          !ledger.Evaluate(*query, &node).fits)
        continue;
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
  const PodRequest& request = ledger.pods().at(move.uid).request;
  Json out = Json::MakeObject({{"namespace", Json::String(request.ns)},
                               {"name", Json::String(request.name)},
                               {"node", Json::String(move.node)},
                               {"request", Json::String(device::RequestText(
                                               *request.devices, ledger.options().gpu_mem_unit))},
                               {"milli", Json::Int(move.milli_gpu)}});
  AddTargets(ledger, move, &out);
  return out;
}

// Pods that would each make room for the request by leaving their node. Tries at most kMaxTries
// pods; `complete` becomes false if there are more.
std::vector<Move> FindMoves(ClusterLedger& ledger, const PodRequest& request, bool* complete) {
  std::vector<Move> moves;
  size_t tries = 0;
  for (const auto& [name, node] : ledger.nodes()) {
    const std::vector<Uid> pods = ledger.PodsOn(name);  // a copy: trying changes the ledger's set
    if (pods.empty() || !IsCandidate(request, node) || CanSkip(ledger, request, node)) continue;
    for (const Uid& uid : pods) {
      const PodEntry& pod = ledger.pods().at(uid);
      if (pod.deleting) continue;
      if (++tries > kMaxTries) {
        *complete = false;
        return moves;
      }
      const int64_t milli_gpu = MilliGpuOf(pod);
      const WithoutPod without(ledger, uid);
      if (FitsOn(ledger, request, node)) moves.push_back({uid, name, milli_gpu});
    }
  }
  return moves;
}

// The request of a container for whole GPUs, or for a part of one.
Result<device::ContainerRequest> RequestOf(const device::ContainerRequest& before,
                                           const WhatIf::ChangedRequest& wanted) {
  device::ContainerSpec spec{.name = before.name, .phase = before.phase};
  if (wanted.whole) {
    spec.limits[std::string(names::kResourceGpu)] = fmt::format("{}", wanted.gpus);
  } else {
    spec.limits[std::string(names::kResourceVcudaCore)] = fmt::format("{}", wanted.hundredths);
    spec.limits[std::string(names::kResourceVcudaMemory)] = fmt::format("{}", wanted.memory_blocks);
  }
  return device::ParseContainer(spec, {});
}

Result<PodRequest> ChangedRequest(const PodRequest& request, const WhatIf& what_if) {
  PodRequest changed = request;
  device::DeviceRequest devices = *request.devices;
  if (what_if.model) {
    devices.constraints.models.clear();
    for (const std::string_view model : SplitList(*what_if.model)) {
      devices.constraints.models.emplace_back(model);
    }
  }
  if (!what_if.request) {
    changed.devices = SharedValue(std::move(devices));
    return changed;
  }
  const auto requests_gpus = [](const device::ContainerRequest& container) {
    return container.count > 0;
  };
  const auto requesting = std::ranges::count_if(devices.containers, requests_gpus);
  if (requesting != 1) {
    return Error(Code::kFailedPrecondition,
                 "{} containers of the pod request GPUs: only a request of one container can be "
                 "changed here",
                 requesting);
  }
  device::ContainerRequest& container = *std::ranges::find_if(devices.containers, requests_gpus);
  ASSIGN_OR_RETURN(container, RequestOf(container, *what_if.request));
  devices.one_gpu = false;
  changed.devices = SharedValue(std::move(devices));
  return changed;
}

}  // namespace

Json JsonOfNearNodes(ClusterLedger& ledger, ClusterLedger::Query& query) {
  std::vector<CandidateNode> candidates;
  size_t reports = 0;
  for (const auto& [name, node] : ledger.nodes()) {
    if (!IsCandidate(query.request, node) || ++reports > kMaxReports) continue;
    Result<placement::NodeReport> report = ledger.Report(query, name);
    if (!report.ok()) continue;
    CandidateNode candidate{name, *std::move(report)};
    const ledger::Verdict verdict = ledger.Evaluate(query, &node);
    if (candidate.report.shortfall.ok() && !verdict.fits) candidate.not_allowed = verdict.reason;
    for (size_t i = 0; i < ledger.cluster().node(node.id).gpus.size(); ++i) {
      if (ShortfallAt(candidate.report, i).reason == placement::UnfitReason::kNothing)
        ++candidate.free;
    }
    candidates.push_back(std::move(candidate));
  }
  std::ranges::stable_sort(candidates, [](const CandidateNode& a, const CandidateNode& b) {
    if (a.fits() != b.fits()) return a.fits();
    if (a.fits()) return a.report.score.value_or(0) > b.report.score.value_or(0);
    return a.free > b.free;
  });
  Json out = Json::MakeArray();
  for (const CandidateNode& candidate : candidates) {
    if (out.items().size() >= kMaxListedNodes) break;
    out.Append(JsonOfCandidate(ledger, candidate));
  }
  return out;
}

Json FindPodsToMove(ClusterLedger& ledger, const PodRequest& request) {
  bool complete = true;
  std::vector<Move> moves = FindMoves(ledger, request, &complete);
  std::ranges::stable_sort(moves,
                           [](const Move& a, const Move& b) { return a.milli_gpu < b.milli_gpu; });
  Json list = Json::MakeArray();
  for (const Move& move : moves) {
    if (list.items().size() >= kMaxMoves) break;
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

Result<Json> AnswerWhatIf(ClusterLedger& ledger, const Uid& uid, const WhatIf& what_if,
                          bool details) {
  const WithoutPod without_itself(ledger, uid);
  if (!without_itself.pod().request.devices->requests_devices()) {
    return Error(Code::kInvalidArgument, "{}", without_itself.pod().problem());
  }
  ASSIGN_OR_RETURN(PodRequest changed, ChangedRequest(without_itself.pod().request, what_if));
  std::optional<WithoutPod> without_other;
  const std::string& other_name = what_if.without_name;
  const bool is_itself = what_if.without_ns == changed.ns && other_name == changed.name;
  if (!other_name.empty() && !is_itself) {
    const PodEntry* other = ledger.FindPod(what_if.without_ns, other_name);
    if (other == nullptr) {
      return Error(Code::kNotFound, "there is no pod {}/{}", what_if.without_ns, other_name);
    }
    without_other.emplace(ledger, other->request.uid);
  }
  ASSIGN_OR_RETURN(ClusterLedger::Query query, ledger.MakeQuery(std::move(changed)));
  Json out = Json::MakeObject(
      {{"request",
        Json::String(device::RequestText(*query.request.devices, ledger.options().gpu_mem_unit))}});
  AddEvaluation(ledger, query, details, &out);
  return out;
}

}  // namespace tessera::console
