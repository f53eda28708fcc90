// SPDX-License-Identifier: Apache-2.0
// Matches label selectors with objects, and a pod's node selector, required node affinity and
// tolerations with nodes. The rules are those of kube-scheduler's plugins NodeAffinity,
// TaintToleration and NodeUnschedulable (pkg/scheduler/framework/plugins) and of
// k8s.io/component-helpers/scheduling/corev1.
//
// NodeConstraints serve only explanations to users: kube-scheduler itself decides. Pure; any
// thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"

namespace tessera::kube {

// Selects objects by their labels.
struct LabelSelector {
  // kGt and kLt compare integers; only node affinities have them.
  enum class Operator : uint8_t { kIn, kNotIn, kExists, kDoesNotExist, kGt, kLt };
  struct Requirement {
    std::string key;
    Operator op = Operator::kIn;
    std::vector<std::string> values;
    auto operator<=>(const Requirement&) const = default;
  };
  std::vector<Requirement> requirements;  // including matchLabels

  // Without requirements all objects match.
  bool Matches(const StringMap& labels) const;
  auto operator<=>(const LabelSelector&) const = default;
};
// "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"; INVALID_ARGUMENT for another text.
Result<LabelSelector::Operator> OperatorOf(std::string_view text);

inline constexpr std::string_view kLabelHostname = "kubernetes.io/hostname";

struct Taint {
  std::string key;
  std::string value;
  std::string effect;
  auto operator<=>(const Taint&) const = default;
};

// What a pod's spec requires of the pod's node.
struct NodeConstraints {
  struct Toleration {
    std::string key;  // "": all keys
    bool any_value = false;
    std::string value;
    std::string effect;  // "": all effects
    auto operator<=>(const Toleration&) const = default;
  };
  // A node must match all labels and fields of a term. A term without both matches no node.
  struct AffinityTerm {
    LabelSelector labels;
    LabelSelector fields;  // the only field of a node is metadata.name
    auto operator<=>(const AffinityTerm&) const = default;
  };
  StringMap selector;  // nodeSelector
  // Required node affinity: one term must match. nullopt: no affinity.
  std::optional<std::vector<AffinityTerm>> required_affinity;
  std::vector<Toleration> tolerations;

  bool Tolerates(const Taint& taint) const;
  // Whether the pod may run on a cordoned node.
  bool ToleratesCordon() const;
  auto operator<=>(const NodeConstraints&) const = default;
};

// The properties of a Node that NodeConstraints are compared with.
struct NodeTraits {
  StringMap labels;
  std::vector<Taint> taints;
  auto operator<=>(const NodeTraits&) const = default;
};

// Why kube-scheduler excludes a node.
struct Exclusion {
  std::string_view kind;  // for JSON: "taint", "node-selector", "node-affinity"
  // A clause for users, equal for all nodes with this reason: "taint a=b:NoSchedule is not
  // tolerated".
  std::string reason;
};
// The first reason why the pod cannot run on the node; nullopt if there is none. A node without the
// label kubernetes.io/hostname is treated as if the label had the node's name, so that all nodes of
// one type can share `traits`.
std::optional<Exclusion> FindExclusion(const NodeConstraints& pod, const std::string& node,
                                       const NodeTraits& traits);

}  // namespace tessera::kube
