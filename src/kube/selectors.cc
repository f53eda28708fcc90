// SPDX-License-Identifier: Apache-2.0
#include "src/kube/selectors.h"

#include <algorithm>

namespace tessera::kube {
namespace {

// `label` is null if the object lacks it.
bool Meets(const LabelSelector::Requirement& requirement, const std::string* label) {
  using Operator = LabelSelector::Operator;
  const std::vector<std::string>& values = requirement.values;
  const bool listed = label != nullptr && std::ranges::find(values, *label) != values.end();
  switch (requirement.op) {
    case Operator::kIn:
      return listed;
    case Operator::kNotIn:
      return !listed;
    case Operator::kExists:
      return label != nullptr;
    case Operator::kDoesNotExist:
      return label == nullptr;
    case Operator::kGt:
    case Operator::kLt: {
      if (label == nullptr || values.size() != 1) return false;
      const Result<int64_t> value = ParseInt(*label);
      const Result<int64_t> bound = ParseInt(values[0]);
      if (!value.ok() || !bound.ok()) return false;
      return requirement.op == Operator::kGt ? *value > *bound : *value < *bound;
    }
  }
  return false;
}

// The labels of a node, with its name as the host name.
class NodeLabels {
 public:
  NodeLabels(const std::string& node, const StringMap& labels) : node_(node), labels_(labels) {}
  const std::string* Find(const std::string& key) const {
    const auto found = labels_.find(key);
    if (found != labels_.end()) return &found->second;
    return key == kLabelHostname ? &node_ : nullptr;
  }
  bool Match(const NodeConstraints::AffinityTerm& term) const {
    const auto& labels = term.labels.requirements;
    const auto& fields = term.fields.requirements;
    if (labels.empty() && fields.empty()) return false;
    return std::ranges::all_of(labels,
                               [&](const auto& requirement) {
                                 return Meets(requirement, Find(requirement.key));
                               }) &&
           std::ranges::all_of(fields, [&](const auto& requirement) {
             return requirement.key == "metadata.name" && Meets(requirement, &node_);
           });
  }

 private:
  const std::string& node_;
  const StringMap& labels_;
};

}  // namespace

Result<LabelSelector::Operator> OperatorOf(std::string_view text) {
  using Operator = LabelSelector::Operator;
  if (text == "In") return Operator::kIn;
  if (text == "NotIn") return Operator::kNotIn;
  if (text == "Exists") return Operator::kExists;
  if (text == "DoesNotExist") return Operator::kDoesNotExist;
  if (text == "Gt") return Operator::kGt;
  if (text == "Lt") return Operator::kLt;
  return Error(Code::kInvalidArgument, "unknown operator \"{}\" of a label selector", text);
}

bool LabelSelector::Matches(const StringMap& labels) const {
  return std::ranges::all_of(requirements, [&](const Requirement& requirement) {
    const auto label = labels.find(requirement.key);
    return Meets(requirement, label == labels.end() ? nullptr : &label->second);
  });
}

bool NodeConstraints::Tolerates(const Taint& taint) const {
  return std::ranges::any_of(tolerations, [&](const Toleration& toleration) {
    if (!toleration.effect.empty() && toleration.effect != taint.effect) return false;
    if (!toleration.key.empty() && toleration.key != taint.key) return false;
    // Without a key, only the operator Exists is valid.
    return toleration.any_value || (!toleration.key.empty() && toleration.value == taint.value);
  });
}

bool NodeConstraints::ToleratesCordon() const {
  return Tolerates(
      {.key = "node.kubernetes.io/unschedulable", .value = "", .effect = "NoSchedule"});
}

std::optional<Exclusion> FindExclusion(const NodeConstraints& pod, const std::string& node,
                                       const NodeTraits& traits) {
  const NodeLabels labels(node, traits.labels);
  for (const auto& [key, value] : pod.selector) {
    const std::string* label = labels.Find(key);
    if (label != nullptr && *label == value) continue;
    return Exclusion{"node-selector",
                     fmt::format("the node selector {}={} does not match", key, value)};
  }
  if (pod.required_affinity && std::ranges::none_of(*pod.required_affinity, [&](const auto& term) {
        return labels.Match(term);
      })) {
    return Exclusion{"node-affinity",
                     "the required node affinity does not match the node's labels"};
  }
  for (const Taint& taint : traits.taints) {
    if ((taint.effect != "NoSchedule" && taint.effect != "NoExecute") || pod.Tolerates(taint)) {
      continue;
    }
    return Exclusion{"taint",
                     fmt::format("taint {}{}{}:{} is not tolerated", taint.key,
                                 taint.value.empty() ? "" : "=", taint.value, taint.effect)};
  }
  return std::nullopt;
}

}  // namespace tessera::kube
