// SPDX-License-Identifier: Apache-2.0
// The arrivals of one run, and the cluster built from a trace: the protocol of the FGD experiments
// (docs/tasks/replay.md). All random choices derive from the seed of the run.
//
// Threads: pure functions; a LoadedTrace belongs to its cluster's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "src/base/status.h"
#include "src/placement/cluster.h"
#include "src/placement/policy.h"
#include "src/replay/trace.h"

namespace tessera::replay {

// Positions in `pods` in the order of arrival: sorted by name, shuffled, and adjusted to `load`
// percent of `capacity` thousandths. If the pods request more, random pods are removed; if less,
// random pods of the list are repeated until the next would exceed the load.
std::vector<uint32_t> Arrivals(const std::vector<TracePod>& pods, int64_t capacity, int load,
                               Random& random);

// The most frequent pods (by CPU, GPUs, thousandths, models; not memory) that make up `share` of
// the list, with their counts; equally frequent pods in order of size.
struct TypicalPod {
  TracePod pod;  // without name, memory and times
  size_t count = 0;
};
std::vector<TypicalPod> TypicalPods(const std::vector<TracePod>& pods, double share = 0.95);
// Bounds the distinct typical pods; no known trace has a tenth of this number.
inline constexpr size_t kMaxTypicalPods = 1024;

// Pods that fit on no node, because no node has any of the models that they name.
struct UnknownModels {
  size_t pods = 0;
  std::vector<std::string> models;  // the unknown models, each once

  std::string Text() const;  // the first models, quoted, for messages
};
UnknownModels FindUnknownModels(const std::vector<TraceNode>& nodes,
                                const std::vector<TracePod>& pods);

// The resource that a share divides. With kMemory, `gpu_milli` counts thousandths of a GPU's device
// memory, as a request in GiB does, and no compute is requested.
enum class ShareResource : uint8_t { kCompute, kMemory };

// A cluster with the nodes of a trace, and the demands of the pods of the trace.
struct LoadedTrace {
  std::unique_ptr<placement::Cluster> cluster;
  // By position in the list; nullopt for a pod that requests more GPUs than any node may have.
  std::vector<std::optional<placement::Demand>> demands;
  std::vector<placement::MixEntry> mix;  // the typical pods
};

// Builds the cluster. Adds nodes in a random order, so that ties, which the lowest ID wins, are
// resolved randomly. RESOURCE_EXHAUSTED for too many GPU models.
Result<LoadedTrace> LoadTrace(const std::vector<TraceNode>& nodes,
                              const std::vector<TracePod>& pods, ShareResource share_resource,
                              Random& random);

}  // namespace tessera::replay
