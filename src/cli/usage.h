// SPDX-License-Identifier: Apache-2.0
// The GPU usage of containers with a share, for `tessera top` and `tessera explain`, as reported by
// the agents (agents.h). Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/cli/commands.h"
#include "src/cli/output/table.h"
#include "src/formats/json.h"
#include "src/kube/objects.h"

namespace tessera::cli {

// One container on one GPU.
struct ContainerUse {
  std::string node, ns, pod, container, uuid;
  std::string gpu;                        // the GPU's index; "-" if the GPU is gone
  bool limited = true;                    // false: isolation is off, and only the grant is known
  MilliGpu compute;                       // granted
  std::optional<MilliGpu> compute_limit;  // nullopt: not limited
  // In the last second, measured by the limiters and by the driver; nullopt: not measured.
  std::optional<MilliGpu> compute_used, compute_by_driver;
  // Mean number of threads that waited for the share in the last second, in thousandths.
  std::optional<int64_t> waiting_threads_milli;
  std::optional<int64_t> waited_ms;  // by all threads since the container started
  // Thousandths of the GPU, in the last minute.
  std::optional<int64_t> mean_used_milli, mean_by_driver_milli;
  // The largest deviation in a second of the last minute, in thousandths of the GPU: positive if
  // the container exceeded its limit, negative if it waited and got less than its share.
  std::optional<int64_t> worst_deviation_milli;
  std::string compute_class;  // high, normal or low; "": compute is neither limited nor divided
  // Device memory.
  Bytes granted, limit, used, unaccounted, peak;
  std::optional<Bytes> driver_reported;  // what the driver reports, with contexts
  int64_t rejected_allocations = 0;
  int64_t processes = 0;
  int64_t without_limiter = 0;  // processes that bypass the limiter
};

// What one agent reports.
struct UsagePage {
  std::vector<ContainerUse> uses;
  bool complete = true;  // false: the agent has just started and has not found all containers
};

struct ClusterUses {
  std::vector<ContainerUse> uses;          // by namespace, pod, container, node, GPU
  std::map<std::string, Status> problems;  // by node: why its agent did not answer
  std::set<std::string> agent_nodes;       // nodes with an agent, whether it has answered or not
  // Nodes with GPUs and without an agent. Empty if the nodes were not read.
  std::set<std::string> nodes_without_agent;
};

// Whether the node offers GPUs, or offered them while an agent ran.
bool HasGpuResources(const kube::NodeObject& node);
// The message for a node with GPUs and without an agent: `tessera top` cannot show its containers,
// and what the user can do.
std::string TextOfNodeWithoutAgent(std::string_view node);

// Decodes the page /containers of an agent. INVALID_ARGUMENT: it is not that page.
Result<UsagePage> DecodeUses(std::string_view text);

// The usage of one pod's containers.
std::vector<ContainerUse> UsesOf(const ClusterUses& all, std::string_view ns, std::string_view pod);
// Why the usage of a pod is unknown; OK if the agent of its node has answered. `uses`: read from
// this agent only.
Status UsageProblem(const Result<ClusterUses>& uses);
// An error with its remedy if agents failed and none reported usage; otherwise OK.
Status ProblemOf(const ClusterUses& uses);

// The table of `tessera top` for one namespace, or for all if `ns` is "".
Result<std::string> ShowTop(const ClusterUses& uses, std::string_view ns, const Style& style);
// The usage part of `explain` for one pod.
TextTable UsesTable(const std::vector<ContainerUse>& uses);
// A sentence on how exactly the container got its share of compute in the last minute; "" if that
// is unknown.
std::string ShareSentence(const ContainerUse& use);
Json JsonOfUse(const ContainerUse& use);

}  // namespace tessera::cli
