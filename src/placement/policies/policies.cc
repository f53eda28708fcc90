// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/policies.h"

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

Result<const PolicyInfo*> FindPolicy(std::string_view name) {
  std::string known;
  for (const PolicyInfo& info : Policies()) {
    if (ToLower(info.name) == ToLower(name)) return &info;
    known += known.empty() ? "" : ", ";
    known += info.name;
  }
  return Error(Code::kInvalidArgument, "there is no policy \"{}\": there are {}", name, known);
}

Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name, Cluster& cluster,
                                           const PolicyOptions& options) {
  ASSIGN_OR_RETURN(const PolicyInfo* info, FindPolicy(name));
  return info->make(cluster, options);
}

}  // namespace tessera::placement
