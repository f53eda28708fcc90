// SPDX-License-Identifier: Apache-2.0
// Reads the GPU usage of containers from the metrics port of each agent (kube/pod_page.h). That
// needs the right `get` on pods/proxy in the namespace of the agents.
//
// An agent that does not answer is reported as a problem of its node, not as an error. Threads,
// callbacks: the client's runner. Ownership: the client outlives it. Bounds: kParallel requests at
// once.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "src/base/weak_ptr.h"
#include "src/cli/usage.h"
#include "src/kube/client.h"

namespace tessera::cli {

class AgentReader {
 public:
  static constexpr size_t kParallel = 16;
  using Done = std::function<void(Result<ClusterUses>)>;

  // Each agent has to answer within `patience`.
  AgentReader(kube::Client& client, Duration patience);
  ~AgentReader();
  AgentReader(const AgentReader&) = delete;
  AgentReader& operator=(const AgentReader&) = delete;

  // Reads the agent of one node, or all agents if `node` is "". Calls `done` once, but not after
  // the reader is destroyed; a later Read cancels an earlier one. Fails only if the agents cannot
  // be listed.
  void Read(std::string node, Done done);

 private:
  struct Agent {
    std::string pod, node;
  };
  void List(std::string continue_token);
  void TakePage(const Result<kube::ListPage>& page);
  void RequestNext();
  void RequestUsage(const Agent& agent);
  void OnPage(const Agent& agent, const Result<std::string>& page);
  void Finish(Result<ClusterUses> uses);

  kube::Client& client_;
  const Duration patience_;
  std::string node_;
  Done done_;
  std::deque<Agent> agents_;                         // not requested yet
  std::map<std::string, kube::Operation> requests_;  // by pod
  kube::Operation listing_;
  ClusterUses uses_;
  WeakPtrFactory<AgentReader> weak_{this};
};

}  // namespace tessera::cli
