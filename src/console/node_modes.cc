// SPDX-License-Identifier: Apache-2.0
#include "src/console/node_modes.h"

#include <algorithm>
#include <utility>

#include "api/names.h"

namespace tessera::console {
namespace {

constexpr std::string_view kSharesFlag = "--shared-resources=";
constexpr const char* kHelmRelease = "meta.helm.sh/release-name";  // Helm adds it to its objects

// Whether the kubelet or an agent owns the label, and would restore it after a change.
bool IsManaged(std::string_view label) {
  const std::string_view domain = label.substr(0, label.find('/'));
  return domain.ends_with("kubernetes.io") || domain.ends_with("k8s.io") ||
         domain == "nvidia.com" || domain == "gaia.tencent.com";
}

bool OffersShares(const Json& daemon_set) {
  for (const Json& container : ItemsAt(daemon_set, {"spec", "template", "spec", "containers"})) {
    for (const Json& arg : ItemsAt(container, {"args"})) {
      if (!arg.is_string() || !arg.string_value().starts_with(kSharesFlag)) continue;
      return arg.string_value().substr(kSharesFlag.size()) != "none";
    }
  }
  return true;
}

void Apply(const LabelChange& change, StringMap* labels) {
  for (const auto& [label, value] : change.labels) {
    if (value) {
      (*labels)[label] = *value;
    } else {
      labels->erase(label);
    }
  }
}

// Takes the node out of `pool` by removing one label that `wanted` does not need.
void Leave(const AgentPool& pool, const AgentPool& wanted, LabelChange* change) {
  for (const auto& [label, value] : pool.constraints.selector) {
    if (wanted.constraints.selector.contains(label) || IsManaged(label)) continue;
    change->labels[label] = std::nullopt;
    return;
  }
}

}  // namespace

bool AgentPool::Covers(const StringMap& node_labels) const {
  return !kube::FindExclusion(constraints, "", {.labels = node_labels, .taints = {}});
}

std::optional<AgentPool> AgentPoolOf(const Json& daemon_set) {
  const Json* meta = daemon_set.Find("metadata");
  const Json* pod = FindPath(daemon_set, {"spec", "template"});
  if (meta == nullptr || pod == nullptr || pod->Find("spec") == nullptr) return std::nullopt;
  AgentPool pool;
  pool.daemon_set = meta->StringAt("name").value_or("");
  pool.name = TextAt(daemon_set, {"metadata", "labels", names::kLabelAgentPool});
  pool.offers_shares = OffersShares(daemon_set);
  pool.by_helm = FindPath(daemon_set, {"metadata", "annotations", kHelmRelease}) != nullptr;
  const Result<kube::PodObject> pods =
      kube::Decode<kube::PodObject>(kube::RawObject(*pod), {.constraints = true});
  if (pods.ok()) {
    pool.constraints = pods->constraints;
  } else {
    pool.constraints.required_affinity.emplace();  // without a term: covers no node
  }
  return pool;
}

LabelChange ChangeFor(const AgentPool& wanted, const std::vector<AgentPool>& pools,
                      const StringMap& node_labels) {
  LabelChange change;
  for (const auto& [label, value] : wanted.constraints.selector) {
    const auto found = node_labels.find(label);
    if (found != node_labels.end() && found->second == value) continue;
    if (IsManaged(label)) {
      change.problem = "the node would need label " + label + "=" + value +
                       ", which Kubernetes or the agent writes";
      return change;
    }
    change.labels[label] = value;
  }
  StringMap after = node_labels;
  Apply(change, &after);
  for (const AgentPool& pool : pools) {
    if (wanted.Covers(after)) return change;
    if (pool.daemon_set == wanted.daemon_set || !pool.Covers(after)) continue;
    Leave(pool, wanted, &change);
    Apply(change, &after);
  }
  if (!wanted.Covers(after)) {
    change.labels.clear();
    change.problem =
        "the labels that keep the node out of the pool are written by Kubernetes or the agent";
  }
  return change;
}

Json JsonOfChange(const LabelChange& change) {
  Json labels = Json::MakeObject();
  for (const auto& [label, value] : change.labels) {
    labels.Set(label, value ? Json::String(*value) : Json());
  }
  return labels;
}

Json JsonOfModes(const std::vector<AgentPool>& pools, const StringMap& node_labels) {
  Json choices = Json::MakeArray();
  for (const AgentPool& pool : pools) {
    const LabelChange change = ChangeFor(pool, pools, node_labels);
    Json choice = Json::MakeObject({{"pool", Json::String(pool.name)},
                                    {"agents", Json::String(pool.daemon_set)},
                                    {"mode", Json::String(pool.offers_shares ? "shared" : "whole")},
                                    {"current", Json::Bool(pool.Covers(node_labels))},
                                    {"labels", JsonOfChange(change)}});
    if (!change.problem.empty()) choice.Set("problem", Json::String(change.problem));
    choices.Append(std::move(choice));
  }
  Json out = Json::MakeObject({{"choices", std::move(choices)}});
  if (std::ranges::any_of(pools, &AgentPool::by_helm)) out.Set("byHelm", Json::Bool(true));
  return out;
}

}  // namespace tessera::console
