// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/policies.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <string>

#include "src/base/strings.h"

namespace tessera::placement {

std::span<const PolicyInfo> Policies() {
  static constexpr std::array kPolicies{
      PolicyInfo{kDefaultPolicy,
                 "the default: the least terminal waste, reserves slots for large pods",
                 MakeTessera},
      PolicyInfo{"BestFit", "the least CPU and GPU left over", MakeBestFit},
      PolicyInfo{"FGD", "the least fragmentation for the expected pods", MakeFgd},
      PolicyInfo{"GpuPacking", "GPUs in use before idle GPUs, nodes in use before idle nodes",
                 MakeGpuPacking},
      PolicyInfo{"GpuClustering", "gathers pods that request the same number of GPUs",
                 MakeGpuClustering},
      PolicyInfo{
          "DotProd",
          "nodes with few free resources, or free resources in another proportion than the pod's",
          MakeDotProd},
      PolicyInfo{"NodeBinpackGpuBinpack", "fills nodes and their GPUs", MakeNodeBinpackGpuBinpack},
      PolicyInfo{"NodeBinpackGpuSpread", "fills nodes, spreads over their GPUs",
                 MakeNodeBinpackGpuSpread},
      PolicyInfo{"NodeSpreadGpuBinpack", "spreads over nodes, fills their GPUs",
                 MakeNodeSpreadGpuBinpack},
      PolicyInfo{"NodeSpreadGpuSpread", "spreads over nodes and their GPUs",
                 MakeNodeSpreadGpuSpread},
      PolicyInfo{"GpuShare", "like gpushare: the GPU with the least free memory that suffices",
                 MakeGpuShare},
      PolicyInfo{"GpuAdmission", "like gpu-admission: the fullest node, the fullest GPU",
                 MakeGpuAdmission},
      PolicyInfo{"GpuManager", "like gpu-manager: the fullest node, GPUs close on PCIe",
                 MakeGpuManager},
      PolicyInfo{"Random", "any node on which it fits", MakeRandom},
  };
  return kPolicies;
}

namespace {

// The parts of the default policy that the name excludes, each after a dash.
Result<PolicyParts> ExcludedParts(std::string_view name) {
  PolicyParts excluded_parts;
  for (size_t dash = name.find('-'); dash != name.npos; dash = name.find('-')) {
    name.remove_prefix(dash + 1);
    const std::string part = ToLower(name.substr(0, name.find('-')));
    const auto at = std::ranges::find(kPolicyParts, part);
    if (at == kPolicyParts.end()) {
      return Error(Code::kInvalidArgument, "unknown part \"{}\" of a policy: {} has {}", part,
                   kDefaultPolicy, fmt::join(kPolicyParts, ", "));
    }
    excluded_parts.set(static_cast<size_t>(at - kPolicyParts.begin()));
  }
  return excluded_parts;
}

}  // namespace

Result<const PolicyInfo*> FindPolicy(std::string_view name) {
  ASSIGN_OR_RETURN(const PolicyParts excluded_parts, ExcludedParts(name));
  const std::string whole = ToLower(name.substr(0, name.find('-')));
  for (const PolicyInfo& info : Policies()) {
    if (ToLower(info.name) == whole && (excluded_parts.none() || info.make == MakeTessera))
      return &info;
  }
  return Error(Code::kInvalidArgument, "unknown policy \"{}\": use one of {}", name,
               fmt::join(Policies() | std::views::transform(&PolicyInfo::name), ", "));
}

Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name, Cluster& cluster,
                                           PolicyOptions options) {
  ASSIGN_OR_RETURN(const PolicyInfo* info, FindPolicy(name));
  ASSIGN_OR_RETURN(options.excluded_parts, ExcludedParts(name));
  return info->make(cluster, options);
}

}  // namespace tessera::placement
