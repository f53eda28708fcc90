// SPDX-License-Identifier: Apache-2.0
// Constructors of all policies; policies.cc has the table of names. Included only in src/placement.
#pragma once

#include <memory>

#include "src/placement/policy.h"

namespace tessera::placement {

std::unique_ptr<Policy> MakeTessera(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeBestFit(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeDotProd(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeGpuClustering(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeGpuPacking(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeRandom(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeFgd(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeNodeBinpackGpuBinpack(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeNodeBinpackGpuSpread(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeNodeSpreadGpuBinpack(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeNodeSpreadGpuSpread(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeGpuShare(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeGpuAdmission(Cluster& cluster, const PolicyOptions& options);
std::unique_ptr<Policy> MakeGpuManager(Cluster& cluster, const PolicyOptions& options);

}  // namespace tessera::placement
