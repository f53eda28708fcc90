// SPDX-License-Identifier: Apache-2.0
// Asks an engine over its socket whether it serves, who it is and which runtimes it knows. Speaks
// as much HTTP/2 and protobuf as two calls with small answers need, so that the program stays small
// and needs none of the engine's tools. Blocks, with a deadline. Threads: any.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/runtime/engine/plan.h"

namespace tessera::engine {

struct EngineAnswer {
  // Who sent the answer, not who made the socket: with socket activation that is systemd. 0 where
  // the process lives in a pid namespace that we do not see.
  pid_t pid = 0;
  std::optional<Version> version;
  // The kubelet's interface is served. Docker has none: false.
  bool serves_cri = false;
  // Handlers; empty where the engine does not tell (containerd before 2.0).
  std::vector<std::string> runtimes;
  std::string default_runtime;  // Docker only
};

// UNAVAILABLE: nobody listens; DEADLINE_EXCEEDED: it does not answer; DATA_LOSS: what it answers is
// not the protocol.
Result<EngineAnswer> AskEngine(Engine engine, const std::string& socket_path, Duration deadline);

}  // namespace tessera::engine
