// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/deploy_labels.h"

#include "api/names.h"

namespace tessera::driver {
namespace {

std::string LabelOf(std::string_view component) {
  return std::string(names::kLabelDeployPrefix).append(component);
}

bool Has(const StringMap& labels, std::string_view name, std::string_view value) {
  const auto found = labels.find(name);
  return found != labels.end() && found->second == value;
}

}  // namespace

StringChanges DeployLabelChanges(const StringMap& labels, bool has_gpu,
                                 const std::vector<std::string>& components) {
  StringChanges changes;
  if (!has_gpu && !labels.contains(names::kLabelGpuPresent)) return changes;
  const std::string present = has_gpu ? "true" : "false";
  if (!Has(labels, names::kLabelGpuPresent, present))
    changes[std::string(names::kLabelGpuPresent)] = present;
  const bool wanted = has_gpu && !Has(labels, names::kLabelDeployOperands, "false");
  for (const std::string& component : components) {
    const std::string label = LabelOf(component);
    const bool exists = labels.contains(label);
    if (wanted && !exists) changes[label] = "true";
    if (!wanted && exists) changes[label] = std::nullopt;
  }
  return changes;
}

bool IsDeployed(const StringMap& labels, std::string_view component) {
  return Has(labels, LabelOf(component), "true");
}

}  // namespace tessera::driver
