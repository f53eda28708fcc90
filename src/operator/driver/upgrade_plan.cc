// SPDX-License-Identifier: Apache-2.0
// The plan of an upgrade: NextUpgradeStep on a copy of the fleet in which each action succeeds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "src/operator/driver/upgrade.h"

#include "api/names.h"
#include "src/operator/driver/node_stepper.h"

namespace tessera::driver {
namespace {

// More than the steps that any node takes. A plan with more steps shows a bug in NextUpgradeStep.
constexpr int kMaxStepsPerNode = 32;

struct PlannedNode {
  std::string name;
  std::string from;
  std::string to;
  int wave = 0;
  std::vector<std::string> pods;
  std::string problem;
};

class Planner {
 public:
  Planner(const UpgradePolicy& policy, std::vector<UpgradeNode> nodes, WallTime now)
      : policy_(policy), nodes_(std::move(nodes)), now_(now) {}

  std::string Text();

 private:
  UpgradeNode* Find(std::string_view name) {
    const auto found = std::ranges::find(nodes_, name, &UpgradeNode::name);
    return found != nodes_.end() ? &*found : nullptr;
  }
  void EnterUpgradeRequired();
  void Run();
  void Apply(const UpgradeAction& action);
  void Record(const UpgradeAction& action, UpgradeNode* node, bool* began);
  std::string SkippedText() const;

  const UpgradePolicy policy_;
  std::vector<UpgradeNode> nodes_;
  WallTime now_;
  std::vector<PlannedNode> planned_;  // in the order in which they begin
  int wave_ = 0;
  std::string blocked_;
};

void ApplyChanges(const StringChanges& changes, StringMap* to) {
  for (const auto& [name, value] : changes) {
    if (value) {
      (*to)[name] = *value;
    } else {
      to->erase(name);
    }
  }
}

void Planner::Apply(const UpgradeAction& action) {
  UpgradeNode* node = Find(action.node);
  if (node == nullptr) return;
  ApplyChanges(action.labels, &node->labels);
  ApplyChanges(action.annotations, &node->annotations);
  if (action.kind == UpgradeAction::Kind::kCordon) node->unschedulable = true;
  if (action.kind == UpgradeAction::Kind::kUncordon) node->unschedulable = false;
  if (action.pod.empty()) return;
  if (node->driver && node->driver->name == action.pod && node->driver->ns == action.ns) {
    node->driver->revision = node->wanted_revision;
    node->driver->version = node->wanted_version;
    node->driver->ready = true;
    node->driver->restarts = 0;
    node->validated = true;
    return;
  }
  std::erase_if(node->pods, [&](const UpgradePod& pod) {
    return pod.ns == action.ns && pod.name == action.pod;
  });
}

// Brings all nodes that need an upgrade to upgrade-required: no node begins before the plan exists.
void Planner::EnterUpgradeRequired() {
  bool changed = true;
  for (int iteration = 0; changed && iteration < kMaxStepsPerNode; ++iteration) {
    changed = false;
    for (const UpgradeAction& action : NextUpgradeStep(policy_, nodes_, now_).actions) {
      const auto state = StateOfNode(*Find(action.node));
      if (BeginsUpgrade(action) || (state && InProgress(*state))) continue;
      Apply(action);
      changed = true;
    }
  }
}

void Planner::Record(const UpgradeAction& action, UpgradeNode* node, bool* began) {
  if (BeginsUpgrade(action) && node->driver) {
    if (!std::exchange(*began, true)) ++wave_;
    planned_.push_back({node->name, TitleOf(*node->driver), TitleOfWanted(*node), wave_, {}, ""});
    return;
  }
  const auto planned = std::ranges::find(planned_, node->name, &PlannedNode::name);
  if (planned == planned_.end()) return;
  const bool driver_pod = node->driver && node->driver->name == action.pod;
  if (!action.pod.empty() && !driver_pod)
    planned->pods.push_back(fmt::format("{}/{}", action.ns, action.pod));
  if (action.warning) planned->problem = action.reason;
}

void Planner::Run() {
  const int limit = kMaxStepsPerNode * (static_cast<int>(nodes_.size()) + 1);
  for (int iteration = 0; iteration < limit; ++iteration) {
    const UpgradeStep step = NextUpgradeStep(policy_, nodes_, now_);
    blocked_ = step.blocked;
    bool began = false;
    for (const UpgradeAction& action : step.actions) {
      if (UpgradeNode* node = Find(action.node)) Record(action, node, &began);
      Apply(action);
    }
    // Pods of Jobs end by themselves, so they count as ended.
    for (UpgradeNode& node : nodes_) {
      if (StateOfNode(node) == UpgradeState::kWaitForJobsRequired)
        std::erase_if(node.pods, [](const UpgradePod& pod) { return pod.waited_for; });
    }
    if (!step.actions.empty()) continue;
    if (!step.next || *step.next <= now_) return;
    now_ = *step.next;
  }
}

std::string Planner::SkippedText() const {
  std::string text;
  for (const UpgradeNode& node : nodes_) {
    const auto add = [&](std::string_view why) {
      text += fmt::format("  not {}: {}\n", node.name, why);
    };
    if (node.wanted_revision.empty() || !node.driver ||
        node.driver->revision == node.wanted_revision ||
        std::ranges::count(planned_, node.name, &PlannedNode::name) != 0) {
      continue;
    }
    if (ValueAt(node.labels, names::kLabelUpgradeSkip) == "true") {
      add(fmt::format("it has the label {}=true", names::kLabelUpgradeSkip));
    } else if (!node.ready) {
      add("it is not ready");
    } else if (WantedDriverFailedOn(node)) {
      add(fmt::format("driver {} failed there before; to try it again, set the annotation {}",
                      TitleOfWanted(node), names::kAnnotationUpgradeRequested));
    } else if (!policy_.auto_upgrade) {
      add(fmt::format("upgrades are not automatic; to upgrade it, set the annotation {}",
                      names::kAnnotationUpgradeRequested));
    } else {
      add(blocked_.empty() ? "it upgrades already" : blocked_);
    }
  }
  return text;
}

std::string Planner::Text() {
  EnterUpgradeRequired();
  Run();
  std::string text = fmt::format(
      "driver upgrade of {} of {} nodes, {} at once, at most {} unavailable{}\n", planned_.size(),
      nodes_.size(),
      policy_.max_parallel == 0 ? "any number" : std::to_string(policy_.max_parallel),
      policy_.max_unavailable,
      policy_.canaries == 0 ? "" : fmt::format(", {} canaries first", policy_.canaries));
  for (const PlannedNode& node : planned_) {
    text += fmt::format("  {}. {}: {} -> {}", node.wave, node.name, node.from, node.to);
    if (node.from == node.to) text += " with other settings";
    if (!node.pods.empty()) text += fmt::format("; evicts {}", fmt::join(node.pods, ", "));
    if (!node.problem.empty()) text += "; " + node.problem;
    text += "\n";
  }
  return text + SkippedText();
}

}  // namespace

bool BeginsUpgrade(const UpgradeAction& action) {
  const auto state = action.labels.find(names::kLabelUpgradeState);
  return state != action.labels.end() && state->second == NameOf(UpgradeState::kCordonRequired);
}

std::string PlanText(const UpgradePolicy& policy, std::vector<UpgradeNode> nodes, WallTime now) {
  return Planner(policy, std::move(nodes), now).Text();
}

}  // namespace tessera::driver
