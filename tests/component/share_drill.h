// SPDX-License-Identifier: Apache-2.0
// Starts and ends many pods of one size on one node, in an order in which gpushare would swap their
// GPUs. A scheduler in the drill assigns a GPU to each pod. A fake kubelet admits the pods in
// another order and gives them any IDs. Containers start in a third order, and pods are deleted and
// made again under the same name. The agent's parts are real, use real sockets, and keep their
// journal on disk. There is no API server. The drill gives pods to the agent as a watch would. A
// container starts with the runtime's request for its grant, or with PreStartContainer after
// Allocate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/agent/kubelet/plugin_answers.h"

namespace tessera::testing {

struct DrillOptions {
  agent::BindingMode binding = agent::BindingMode::kLate;
  // True: the kubelet's PodResources API fails. With BindingMode::kAllocate the agent then cannot
  // ask which pod the kubelet is admitting. It knows only the order in which it observed the pods,
  // which differs from the kubelet's order.
  bool pod_resources_fails = false;
  int gpus = 8;
  int gib_per_gpu = 141;
  int gib_per_pod = 8;
  int at_once = 1;  // containers that start at the same time
  int starts = 10'000;
  uint64_t seed = 1;
};

struct DrillResult {
  int starts = 0;
  int wrong = 0;    // starts with another GPU than the assigned one
  int refused = 0;  // starts that failed, though a GPU with room was assigned
  int remade = 0;   // pods made under the name of an earlier pod
  std::vector<double> allocate_us;
  // With BindingMode::kAllocate: the part of allocate_us without the wait for PodResources.
  std::vector<double> allocate_agent_us;
  std::vector<double> grant_us;     // of the request for a grant, or of PreStartContainer
  std::vector<double> rejected_us;  // of requests without a decision, between the other requests
  std::string first_refusal;
};

DrillResult RunShareDrill(const DrillOptions& options);

}  // namespace tessera::testing
