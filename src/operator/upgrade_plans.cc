// SPDX-License-Identifier: Apache-2.0
#include "src/operator/upgrade_plans.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"

namespace tessera::operators {
namespace {

using driver::UpgradeNode;

// A plan names at most this many nodes, because the status must not grow with the cluster.
constexpr size_t kMaxPlannedNodes = 20;

bool NeedsUpgrade(const UpgradeNode& node) {
  return node.driver && !node.wanted_revision.empty() &&
         node.driver->revision != node.wanted_revision && !driver::WantedDriverFailedOn(node);
}

std::string PlanTextOf(const driver::FleetView::PoolView& pool, std::vector<UpgradeNode> planned,
                       size_t pool_size, size_t omitted, WallTime now) {
  driver::UpgradePolicy policy = pool.settings->policy;
  std::string text;
  if (!policy.auto_upgrade) {
    text = fmt::format("upgrades are not automatic: annotate a node with {}=true to upgrade it\n",
                       names::kAnnotationUpgradeRequested);
  }
  policy.auto_upgrade = true;
  policy.max_unavailable =
      std::to_string(driver::MaxUnavailable(policy, static_cast<int>(pool_size)));
  text += driver::PlanText(policy, std::move(planned), now);
  if (omitted > 0) text += fmt::format("  and {} more nodes\n", omitted);
  return text;
}

}  // namespace

// The driver revisions that nodes of the pool still need or are being upgraded to. So the key stays
// the same while the nodes upgrade one after the other, and is "" after the last.
std::string UpgradePlans::KeyOf(const driver::FleetView::PoolView& pool) {
  std::set<std::string> wanted;
  for (const UpgradeNode& node : pool.nodes) {
    const auto state = driver::StateOfNode(node);
    if (NeedsUpgrade(node) || (state && driver::InProgress(*state)))
      wanted.insert(node.wanted_revision);
  }
  return fmt::format("{}", fmt::join(wanted, " "));
}

const UpgradePlans::PoolPlan* UpgradePlans::Find(const std::string& pool) const {
  const auto found = plans_.find(pool);
  return found == plans_.end() ? nullptr : &found->second;
}

std::vector<std::string> UpgradePlans::NodesToRead(const driver::FleetView::PoolView& pool) const {
  const PoolPlan* plan = Find(pool.settings->name);
  std::vector<std::string> nodes;
  if (KeyOf(pool) == (plan == nullptr ? "" : plan->key)) return nodes;
  for (const UpgradeNode& node : pool.nodes) {
    if (nodes.size() < kMaxPlannedNodes && NeedsUpgrade(node)) nodes.push_back(node.name);
  }
  return nodes;
}

void UpgradePlans::Update(const driver::FleetView::PoolView& pool,
                          const std::vector<UpgradeNode>& fleet,
                          const std::function<bool(const std::string& node)>& pods_known,
                          WallTime now) {
  PoolPlan& plan = plans_[pool.settings->name];
  const std::string key = KeyOf(pool);
  if (key == plan.key) return;
  if (key.empty()) {
    plan = {};
    return;
  }
  std::vector<UpgradeNode> planned;
  size_t omitted = 0;
  for (const UpgradeNode& node : fleet) {
    if (!NeedsUpgrade(node)) continue;
    if (planned.size() == kMaxPlannedNodes) {
      ++omitted;
      continue;
    }
    if (!pods_known(node.name)) return;
    planned.push_back(node);
  }
  std::string text = PlanTextOf(pool, std::move(planned), fleet.size(), omitted, now);
  Log(Severity::kInfo, "plans a driver upgrade", {{"pool", pool.settings->name}, {"plan", text}});
  plan = {key, std::move(text), /*published=*/false};
}

std::string UpgradePlans::TextOf(const std::string& pool) const {
  const PoolPlan* plan = Find(pool);
  return plan == nullptr ? "" : plan->text;
}

bool UpgradePlans::IsPublished(const std::string& pool) const {
  const PoolPlan* plan = Find(pool);
  return plan != nullptr && plan->published;
}

bool UpgradePlans::OnPublished(const FleetReport& report) {
  bool is_new = false;
  for (const DriverPoolReport& pool : report.pools) {
    PoolPlan& plan = plans_[pool.name];
    if (plan.published || plan.text.empty() || plan.text != pool.plan) continue;
    plan.published = is_new = true;
  }
  return is_new;
}

}  // namespace tessera::operators
