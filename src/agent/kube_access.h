// SPDX-License-Identifier: Apache-2.0
// How the agent goes to the API server: where it is, and under which name it writes. Pure but for
// the environment and the files that it names; any thread.
#pragma once

#include <cstdlib>
#include <string>

#include "src/agent/version.h"
#include "src/kube/client.h"
#include "src/kube/config.h"

namespace tessera::agent {

inline constexpr const char* kFieldManager = "tessera-agent";

// Errors of kube::FindConfig.
inline Result<kube::Config> FindKubeConfig(const std::string& kubeconfig) {
  return kube::FindConfig(kubeconfig,
                          [](const char* name) -> const char* { return std::getenv(name); });
}

inline kube::ClientOptions AgentClientOptions() {
  kube::ClientOptions options;
  options.user_agent = "tessera-agent/" + std::string(kVersion);
  return options;
}

}  // namespace tessera::agent
