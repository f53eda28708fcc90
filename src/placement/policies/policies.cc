// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/policies.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "src/base/strings.h"

namespace tessera::placement {

std::span<const PolicyInfo> Policies() {
  static constexpr std::array kPolicies{
      PolicyInfo{"Tessera", "the default: the least waste in the end, room kept for large pods",
                 MakeTerminalWaste},
      PolicyInfo{"BestFit", "the least CPU and GPU left over", MakeBestFit},
      PolicyInfo{"FGD", "the least fragmentation for the pods that are expected", MakeFgd},
      PolicyInfo{"GpuPacking", "GPUs in use before idle ones, nodes in use before idle ones",
                 MakeGpuPacking},
      PolicyInfo{"GpuClustering", "pods that ask for the same number of GPUs together",
                 MakeGpuClustering},
      PolicyInfo{"DotProd", "nodes whose free resources point elsewhere than the pod's",
                 MakeDotProd},
      PolicyInfo{"NodeBinpackGpuBinpack", "fills nodes and their GPUs", MakeBinpackBinpack},
      PolicyInfo{"NodeBinpackGpuSpread", "fills nodes, spreads over their GPUs", MakeBinpackSpread},
      PolicyInfo{"NodeSpreadGpuBinpack", "spreads over nodes, fills their GPUs", MakeSpreadBinpack},
      PolicyInfo{"NodeSpreadGpuSpread", "spreads over nodes and their GPUs", MakeSpreadSpread},
      PolicyInfo{"GpuShare", "as gpushare: the least free GPU memory that suffices", MakeGpuShare},
      PolicyInfo{"GpuAdmission", "as gpu-admission: the fullest node, the fullest GPU",
                 MakeGpuAdmission},
      PolicyInfo{"GpuManager", "as gpu-manager: the fullest node, GPUs close on PCIe",
                 MakeGpuManager},
      PolicyInfo{"Random", "any node on which it fits", MakeRandom},
  };
  return kPolicies;
}

namespace {

// The parts of the default policy that the name excludes after its first dash.
Result<PolicyParts> LeftOut(std::string_view name) {
  PolicyParts without;
  for (size_t dash = name.find('-'); dash != name.npos; dash = name.find('-')) {
    name.remove_prefix(dash + 1);
    const std::string part = ToLower(name.substr(0, name.find('-')));
    const auto at = std::ranges::find(kPolicyParts, part);
    if (at == kPolicyParts.end()) {
      return Error(Code::kInvalidArgument, "unknown part \"{}\" of a policy: Tessera has {}", part,
                   fmt::join(kPolicyParts, ", "));
    }
    without.set(static_cast<size_t>(at - kPolicyParts.begin()));
  }
  return without;
}

}  // namespace

Result<const PolicyInfo*> FindPolicy(std::string_view name) {
  ASSIGN_OR_RETURN(const PolicyParts without, LeftOut(name));
  const std::string whole = ToLower(name.substr(0, name.find('-')));
  std::string known;
  for (const PolicyInfo& info : Policies()) {
    if (ToLower(info.name) == whole && (without.none() || info.make == MakeTerminalWaste))
      return &info;
    known += known.empty() ? "" : ", ";
    known += info.name;
  }
  return Error(Code::kInvalidArgument, "unknown policy \"{}\": use one of {}", name, known);
}

Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name, Cluster& cluster,
                                           PolicyOptions options) {
  ASSIGN_OR_RETURN(const PolicyInfo* info, FindPolicy(name));
  ASSIGN_OR_RETURN(options.without, LeftOut(name));
  return info->make(cluster, options);
}

}  // namespace tessera::placement
