// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/deploy_labels.h"

namespace tessera::driver {
namespace {

constexpr std::string_view kPresent = "nvidia.com/gpu.present";
constexpr std::string_view kDeployPrefix = "nvidia.com/gpu.deploy.";
constexpr std::string_view kOperands = "nvidia.com/gpu.deploy.operands";

std::string LabelOf(std::string_view component) {
  return std::string(kDeployPrefix).append(component);
}

bool Has(const NodeLabels& labels, std::string_view name, std::string_view value) {
  const auto found = labels.find(name);
  return found != labels.end() && found->second == value;
}

}  // namespace

LabelChanges DeployLabelChanges(const NodeLabels& labels, bool has_gpu,
                                const std::vector<std::string>& components) {
  LabelChanges changes;
  if (!has_gpu && !labels.contains(kPresent)) return changes;
  const std::string present = has_gpu ? "true" : "false";
  if (!Has(labels, kPresent, present)) changes[std::string(kPresent)] = present;
  const bool wanted = has_gpu && !Has(labels, kOperands, "false");
  for (const std::string& component : components) {
    const std::string label = LabelOf(component);
    const bool exists = labels.contains(label);
    if (wanted && !exists) changes[label] = "true";
    if (!wanted && exists) changes[label] = std::nullopt;
  }
  return changes;
}

bool IsDeployed(const NodeLabels& labels, std::string_view component) {
  return Has(labels, LabelOf(component), "true");
}

}  // namespace tessera::driver
