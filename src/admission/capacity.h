// SPDX-License-Identifier: Apache-2.0
// The most that an empty cluster could give to one pod. Admission uses it to warn of pods that
// would wait forever. Whether a warning is given does not depend on what pods hold, but only on
// nodes and quotas.
//
// Threads: a capacity is a value, and each thread may use its own copy; the functions are pure.
// Cost of CapacityOf: a pass over all GPUs.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/base/units.h"
#include "src/ledger/ledger.h"
#include "src/ledger/pod_request.h"
#include "src/placement/quota.h"

namespace tessera::admission {

struct ClusterCapacity {
  struct Model {
    Bytes largest_memory;  // of the GPUs that are not in MIG mode
    int most_on_node = 0;  // largest number of these GPUs on one node
  };
  std::map<std::string, Model, std::less<>> models;  // by product name
  int most_on_node = 0;  // largest number of GPUs on one node, of all models
  std::set<std::string, std::less<>> mig_profiles;
  std::unordered_set<std::string> uuids;  // of GPUs
  // Pairs of model and pool for which quotas may exist. The model is that of the node's label, or
  // that of its GPUs if the node has no such label.
  std::set<std::pair<std::string, std::string>> quota_keys;
  placement::Quota quota;  // with the usage, which only the text of warnings needs
};

ClusterCapacity CapacityOf(const ledger::ClusterLedger& ledger);

// One line for each reason why the pod could not be placed even on an empty cluster. Empty while
// the cluster has no known GPU.
std::vector<std::string> WhyNeverFits(const ledger::PodRequest& pod,
                                      const ClusterCapacity& capacity);

}  // namespace tessera::admission
