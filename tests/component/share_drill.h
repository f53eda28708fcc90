// SPDX-License-Identifier: Apache-2.0
// Many pods of one size come to one node and go, as gpushare swaps them: a scheduler that is part
// of the drill assigns each a GPU, a stand-in for the kubelet admits them in another order and
// gives them any ids, containers start in a third order, and pods are deleted and made again under
// the same name. The agent's parts are real, over real sockets, with the journal on disk; pods come
// to it as from a watch, and no API server is there to be asked. Containers are started by the
// runtime's question, or after PreStartContainer with what Allocate has answered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/agent/kubelet/plugin_answers.h"

namespace tessera::testing {

struct DrillOptions {
  agent::BindingMode binding = agent::BindingMode::kLate;
  // With BindingMode::kAllocate: the kubelet does not say whom it is admitting, so the agent can
  // only go by the order in which it learnt of the pods, which is not the kubelet's.
  bool blind = false;
  int gpus = 8;
  int gib_per_gpu = 141;
  int gib_per_pod = 8;
  int at_once = 1;  // containers that start at the same time
  int starts = 10'000;
  uint64_t seed = 1;
};

struct DrillResult {
  int starts = 0;
  int wrong = 0;    // had another GPU than assigned
  int refused = 0;  // did not start, though they had been assigned a GPU with room
  int remade = 0;   // under the name of a pod before
  std::vector<double> allocate_us;
  std::vector<double> own_us;    // of Allocate with BindingMode::kAllocate: not the kubelet's list
  std::vector<double> grant_us;  // or PreStartContainer
  std::vector<double> ping_us;   // of questions that need no decision, among the others
  std::string first_refusal;
};

DrillResult RunShareDrill(const DrillOptions& options);

}  // namespace tessera::testing
