// SPDX-License-Identifier: Apache-2.0
// Makes the options of the parts of the agent from AgentOptions. agent.cc adds the callbacks that
// connect the parts.
#pragma once

#include "src/agent/agent_options.h"
#include "src/agent/grants_thread.h"
#include "src/agent/node/engine_watch.h"
#include "src/agent/node/readiness.h"
#include "src/agent/plugins.h"

namespace tessera::agent {

ReadinessOptions ReadinessOptionsOf(const AgentOptions& options);
// Reads the checkpoints of other device plugins.
GrantsThreadOptions GrantsThreadOptionsOf(const AgentOptions& options);
PluginsOptions PluginsOptionsOf(const AgentOptions& options);
EngineWatchOptions EngineWatchOptionsOf(const AgentOptions& options);

}  // namespace tessera::agent
