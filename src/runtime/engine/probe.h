// SPDX-License-Identifier: Apache-2.0
// Queries an engine over its socket: whether it serves, its process, version and runtimes.
// Implements only the HTTP/2 and protobuf that two small calls need, so that the program stays
// small and needs no tools of the engine. Blocks until the deadline at most. Threads: any.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/runtime/engine/plan.h"

namespace tessera::engine {

struct EngineInfo {
  // The process that sent the answer, which need not be the creator of the socket (systemd, with
  // socket activation). 0 if the process is in a pid namespace that is not visible here.
  pid_t pid = 0;
  std::optional<Version> version;
  // Whether it serves the kubelet's interface (CRI). Always false for Docker.
  bool serves_cri = false;
  // Runtime handlers; empty if the engine does not report them (containerd before 2.0).
  std::vector<std::string> runtimes;
  std::string default_runtime;  // Docker only
};

// UNAVAILABLE: no process listens; DEADLINE_EXCEEDED: no answer; DATA_LOSS: the answer violates the
// protocol.
Result<EngineInfo> QueryEngine(EngineKind engine, const std::string& socket_path,
                               Duration deadline);

}  // namespace tessera::engine
