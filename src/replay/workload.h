// SPDX-License-Identifier: Apache-2.0
// The arrivals of one run, and what a cluster makes of a trace: the protocol of the FGD experiments
// (docs/tasks/replay.md). Everything that is drawn comes from the seed of the run.
//
// Threads: pure functions; a Loaded belongs to its cluster's thread.
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

// Positions in `pods`, in the order in which they arrive: sorted by name, shuffled, and then tuned
// to `load` percent of `capacity` thousandths. Where they ask for more, random ones go until they
// do not; where for less, random ones of the original list come once more, until the next would be
// too much.
std::vector<uint32_t> Arrivals(const std::vector<TracePod>& pods, int64_t capacity, int load,
                               Random& random);

// The most frequent pods (CPU, GPUs, thousandths, models; not memory) that make up `share` of the
// list, with their counts; equally frequent ones in order of size.
struct TypicalPod {
  TracePod pod;  // without name, memory and times
  size_t count = 0;
};
std::vector<TypicalPod> TypicalPods(const std::vector<TracePod>& pods, double share = 0.95);
// More are not told apart; no trace that we know has a tenth of them.
inline constexpr size_t kMostTypicalPods = 1024;

// Pods that can run nowhere because no node has a model that they name.
struct UnknownModels {
  size_t pods = 0;
  std::vector<std::string> models;  // that they name, each once

  std::string Text() const;  // some of them, quoted
};
UnknownModels FindUnknownModels(const std::vector<TraceNode>& nodes,
                                const std::vector<TracePod>& pods);

// What the shares of a list are shares of. By memory, `gpu_milli` is thousandths of a GPU's device
// memory, as of pods that ask for GiB, and no compute is asked for.
enum class ShareOf : uint8_t { kCompute, kMemory };

// A cluster with the nodes of a trace, and what its pods demand there.
struct Loaded {
  std::unique_ptr<placement::Cluster> cluster;
  // By position in the list; none where a pod wants more GPUs than any node may have.
  std::vector<std::optional<placement::Demand>> demands;
  std::vector<placement::MixEntry> mix;  // the typical pods
};

// Nodes are added in a random order, so that ties, which go to the lowest id, go anywhere.
// RESOURCE_EXHAUSTED for too many GPU models.
Result<Loaded> Load(const std::vector<TraceNode>& nodes, const std::vector<TracePod>& pods,
                    ShareOf share_of, Random& random);

}  // namespace tessera::replay
