// SPDX-License-Identifier: Apache-2.0
#include "src/console/quota_edit.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/device/model.h"

namespace tessera::console {
namespace {

using ledger::ClusterLedger;
using ledger::PodEntry;
using ledger::UseByModel;

constexpr size_t kMaxListed = 50;

// Checks with the parser that the scheduler uses.
Result<placement::QuotaConfig> ConfigOf(const Json& quotas) {
  return placement::ParseQuota(quotas.Serialize());
}

std::vector<const PodEntry*> PodsOf(const ClusterLedger& ledger, const std::string& ns) {
  std::vector<const PodEntry*> pods;
  for (const auto& [uid, pod] : ledger.pods()) {
    if (pod.request.ns == ns) pods.push_back(&pod);
  }
  std::ranges::stable_sort(
      pods, [](const PodEntry* a, const PodEntry* b) { return a->bound_at > b->bound_at; });
  return pods;
}

int64_t ChargedFor(const PodEntry& pod, std::string_view model) {
  int64_t milli = 0;
  for (const placement::QuotaCharge& charge : *pod.charges) {
    if (device::MatchesModel(charge.model, model)) milli += charge.amount.count();
  }
  return milli;
}

// Adds the newest pods that together hold the `excess` over the limit of `model`.
void AddOver(const std::vector<const PodEntry*>& pods, const std::string& model, int64_t excess,
             Json* over) {
  for (const PodEntry* pod : pods) {
    if (excess <= 0 || over->items().size() >= kMaxListed) return;
    const int64_t milli = ChargedFor(*pod, model);
    if (milli == 0) continue;
    over->Append(Json::MakeObject({{"pod", Json::String(pod->request.name)},
                                   {"model", Json::String(model)},
                                   {"milli", Json::Int(milli)}}));
    excess -= milli;
  }
}

// Models of the quota that no GPU of the cluster has.
Json JsonOfUnknown(const ClusterLedger& ledger, const placement::NamespaceQuota& quota) {
  Json unknown = Json::MakeArray();
  if (!quota.limits) return unknown;
  for (const placement::QuotaLimit& line : *quota.limits) {
    const bool known = std::ranges::any_of(ledger.nodes(), [&](const auto& node) {
      return node.second.model_label == line.model ||
             std::ranges::any_of(node.second.node.inventory.without_uuids().gpus,
                                 [&](const device::Gpu& gpu) {
                                   return device::MatchesModel(gpu.model, line.model);
                                 });
    });
    if (!known) unknown.Append(Json::String(line.model));
  }
  return unknown;
}

size_t FittingNodes(ClusterLedger& ledger, const ledger::PodRequest& request) {
  Result<ClusterLedger::Query> query = ledger.MakeQuery(request);
  if (!query.ok() || !query->requests_gpus()) return 0;  // an invalid request fits nowhere
  size_t fitting = 0;
  for (const auto& [name, node] : ledger.nodes()) {
    if (node.id == placement::kNoNode || ClusterLedger::WhyLeftOut(request, node)) continue;
    if (ledger.Evaluate(*query, &node).fits) ++fitting;
  }
  return fitting;
}

Json JsonOfLines(const ClusterLedger& ledger, const std::string& ns,
                 const placement::NamespaceQuota& quota, const std::vector<const PodEntry*>& pods,
                 Json* over) {
  Json lines = Json::MakeArray();
  if (!quota.limits) return lines;
  for (const placement::QuotaLimit& line : *quota.limits) {
    const int64_t used = ledger.quota().Used(ns, line.model).count();
    const int64_t limit = line.gpus * kWholeGpu.count();
    lines.Append(Json::MakeObject({{"model", Json::String(line.model)},
                                   {"usedMilli", Json::Int(used)},
                                   {"limitMilli", Json::Int(limit)}}));
    AddOver(pods, line.model, used - limit, over);
  }
  for (const auto& [model, milli] : UnlistedOf(ledger.QuotaUse()[ns].used, *quota.limits)) {
    lines.Append(Json::MakeObject({{"model", Json::String(model)},
                                   {"usedMilli", Json::Int(milli)},
                                   {"limitMilli", Json::Int(0)}}));
    AddOver(pods, model, milli, over);
  }
  return lines;
}

Json JsonOfOutside(const ClusterLedger& ledger, const placement::NamespaceQuota& quota,
                   const std::vector<const PodEntry*>& pods) {
  Json outside = Json::MakeArray();
  if (quota.pools.empty()) return outside;
  for (const PodEntry* pod : pods) {
    const ledger::NodeEntry* node = pod->node.empty() ? nullptr : ledger.FindNode(pod->node);
    if (node == nullptr || std::ranges::find(quota.pools, node->node.pool) != quota.pools.end()) {
      continue;
    }
    if (outside.items().size() < kMaxListed) outside.Append(Json::String(pod->request.name));
  }
  return outside;
}

}  // namespace

UseByModel UnlistedOf(const UseByModel& used, const std::vector<placement::QuotaLimit>& limits) {
  UseByModel unlisted;
  for (const auto& [model, milli] : used) {
    const bool listed = std::ranges::any_of(limits, [&](const placement::QuotaLimit& limit) {
      return device::MatchesModel(model, limit.model);
    });
    if (!listed) unlisted.emplace(model, milli);
  }
  return unlisted;
}

Json JsonOfQuota(const placement::QuotaConfig& config, const std::string& ns) {
  const auto entry = config.find(ns);
  if (entry == config.end()) return {};
  Json out = Json::MakeObject();
  if (entry->second.limits) {
    Json lines = Json::MakeObject();
    for (const placement::QuotaLimit& line : *entry->second.limits) {
      lines.Set(line.model, Json::Int(line.gpus));
    }
    out.Set("quota", std::move(lines));
  }
  if (!entry->second.pools.empty()) out.Set("pool", Json::Strings(entry->second.pools));
  return out;
}

Result<QuotaChange> ParseQuotaChange(const Json& body) {
  QuotaChange change{.ns = body.StringAt("namespace").value_or("")};
  if (change.ns.empty()) return Error(Code::kInvalidArgument, "\"namespace\" is missing");
  const Json* entry = body.Find("entry");
  if (entry == nullptr) return Error(Code::kInvalidArgument, "\"entry\" is missing");
  change.entry = *entry;
  if (const Json* before = body.Find("before")) change.before = *before;
  if (!entry->is_null()) {
    RETURN_IF_ERROR(ConfigOf(Json::MakeObject({{change.ns, *entry}})).status());
  }
  return change;
}

Json Consequences(ClusterLedger& ledger, const QuotaChange& change) {
  const placement::QuotaConfig old = ledger.quota().config();
  const std::vector<const PodEntry*> pods = PodsOf(ledger, change.ns);
  placement::QuotaConfig next = old;
  next.erase(change.ns);
  if (!change.entry.is_null()) {
    // ParseQuotaChange has checked it.
    next[change.ns] = ConfigOf(Json::MakeObject({{change.ns, change.entry}})).value().at(change.ns);
  }
  const placement::NamespaceQuota quota =
      next.contains(change.ns) ? next.at(change.ns) : placement::NamespaceQuota{};
  Json over = Json::MakeArray(), waiting = Json::MakeArray();
  Json lines = JsonOfLines(ledger, change.ns, quota, pods, &over);
  for (const PodEntry* pod : pods) {
    if (pod->binding_state != ledger::BindingState::kWaiting) continue;
    if (waiting.items().size() >= kMaxListed) break;
    const size_t before = FittingNodes(ledger, pod->request);
    ledger.SetQuota(next);
    const size_t after = FittingNodes(ledger, pod->request);
    ledger.SetQuota(old);
    waiting.Append(Json::MakeObject({{"pod", Json::String(pod->request.name)},
                                     {"before", Json::Int(static_cast<int64_t>(before))},
                                     {"after", Json::Int(static_cast<int64_t>(after))}}));
  }
  return Json::MakeObject({{"lines", std::move(lines)},
                           {"unknown", JsonOfUnknown(ledger, quota)},
                           {"over", std::move(over)},
                           {"outside", JsonOfOutside(ledger, quota, pods)},
                           {"waiting", std::move(waiting)}});
}

Result<Json> WithQuota(const Json* map, const kube::ObjectRef& object, std::string_view key,
                       const QuotaChange& change) {
  Json out = map != nullptr ? *map : kube::NewObject(object, "ConfigMap");
  const Json* text = FindPath(out, {"data", key});
  Json quotas = Json::MakeObject();
  if (text != nullptr && text->is_string()) {
    ASSIGN_OR_RETURN(quotas, ParseJson(text->string_value()));
  }
  // Rejects a map that is invalid already: this change does not repair it.
  ASSIGN_OR_RETURN(const placement::QuotaConfig config, ConfigOf(quotas));
  if (!(JsonOfQuota(config, change.ns) == change.before)) {
    return Error(Code::kAborted,
                 "the quota of {} has changed meanwhile: load it again, then repeat the change",
                 change.ns);
  }
  if (change.entry.is_null()) {
    quotas.Erase(change.ns);
  } else {
    quotas.Set(change.ns, change.entry);
  }
  RETURN_IF_ERROR(ConfigOf(quotas).status());
  ASSIGN_OR_RETURN(Json * data, out.EnsureObject("data"));
  data->Set(key, Json::String(quotas.Serialize()));
  return out;
}

}  // namespace tessera::console
