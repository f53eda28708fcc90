// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver_actions.h"

#include "api/names.h"

namespace tessera::operators {
namespace {

Json ChangesJson(const StringChanges& changes) {
  Json json = Json::MakeObject();
  for (const auto& [name, value] : changes) json.Set(name, value ? Json::String(*value) : Json());
  return json;
}

// The state that the node enters with this action; nullopt: none.
std::optional<driver::UpgradeState> EnteredState(const driver::UpgradeAction& action) {
  const auto label = action.labels.find(names::kLabelUpgradeState);
  if (label == action.labels.end()) return std::nullopt;
  return driver::UpgradeStateFromName(label->second.value_or(""));
}

bool PinsRevision(const driver::UpgradeAction& action) {
  const auto label = action.labels.find(names::kLabelDriverRevision);
  return label != action.labels.end() && label->second.has_value();
}

}  // namespace

Json NodePatchOf(const StringChanges& labels, const StringChanges& annotations,
                 const std::string& resource_version) {
  Json metadata = Json::MakeObject({{"resourceVersion", Json::String(resource_version)}});
  if (!labels.empty()) metadata.Set("labels", ChangesJson(labels));
  if (!annotations.empty()) metadata.Set("annotations", ChangesJson(annotations));
  return Json::MakeObject({{"metadata", std::move(metadata)}});
}

Json NodePatchOf(const driver::UpgradeAction& action, const std::string& resource_version) {
  Json patch = NodePatchOf(action.labels, action.annotations, resource_version);
  const bool cordons = action.kind == driver::UpgradeAction::Kind::kCordon;
  if (cordons || action.kind == driver::UpgradeAction::Kind::kUncordon) {
    patch.Set("spec", Json::MakeObject({{"unschedulable", cordons ? Json::Bool(true) : Json()}}));
  }
  return patch;
}

std::string EventReasonOf(const driver::UpgradeAction& action) {
  if (PinsRevision(action)) return "DriverRolledBack";
  if (action.warning) return "DriverUpgradeFailed";
  switch (action.kind) {
    case driver::UpgradeAction::Kind::kCordon:
      return "DriverUpgradeCordoned";
    case driver::UpgradeAction::Kind::kUncordon:
      return "DriverUpgradeUncordoned";
    case driver::UpgradeAction::Kind::kEvict:
      return "DriverUpgradeEvicts";
    case driver::UpgradeAction::Kind::kDeletePod:
      return "DriverUpgradeDeletes";
    case driver::UpgradeAction::Kind::kPatchNode:
      break;
  }
  const auto state = EnteredState(action);
  if (state == driver::UpgradeState::kUpgradeRequired) return "DriverUpgradeRequired";
  if (state == driver::UpgradeState::kDone) return "DriverUpToDate";
  if (state == driver::UpgradeState::kFailed) return "DriverUpgradeFailed";
  return "DriverUpgrade";
}

std::string_view UpgradeResultOf(const driver::UpgradeAction& action, driver::UpgradeState before) {
  if (PinsRevision(action)) return "rolled_back";
  const auto state = EnteredState(action);
  if (state == driver::UpgradeState::kDone) {
    return before == driver::UpgradeState::kUncordonRequired ? "done" : "";
  }
  return state == driver::UpgradeState::kFailed ? "failed" : "";
}

bool BeginsUpgrade(const driver::UpgradeAction& action) {
  return EnteredState(action) == driver::UpgradeState::kCordonRequired;
}

}  // namespace tessera::operators
