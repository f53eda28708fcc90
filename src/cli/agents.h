// SPDX-License-Identifier: Apache-2.0
// Reads the GPU usage of containers from the page of each agent (kube/agent_pages.h, which lists
// the RBAC rights needed).
//
// An agent that does not answer is reported as a problem of its node, not as an error. Threads: the
// client's runner, which also runs the callbacks. Ownership: the client must outlive the reader.
#pragma once

#include <functional>
#include <string>

#include "src/cli/usage.h"
#include "src/kube/agent_pages.h"

namespace tessera::cli {

class AgentReader {
 public:
  using Done = std::function<void(Result<ClusterUses>)>;

  // The time within which each agent must answer. An agent that hangs delays the output by this.
  static constexpr Duration kTimeout = std::chrono::seconds(3);

  explicit AgentReader(kube::Client& client) : pages_(client, kTimeout) {}

  // Reads the agent of one node, or all agents if `node` is "". Calls `done` once, but not after
  // the reader is destroyed; a later Read cancels an earlier one. Fails only if the agents cannot
  // be listed.
  void Read(std::string node, Done done);

 private:
  void OnPage(const kube::AgentPages::AgentPod& agent, const Result<std::string>& page);

  Done done_;
  ClusterUses uses_;
  kube::AgentPages pages_;
};

}  // namespace tessera::cli
