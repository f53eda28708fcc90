// SPDX-License-Identifier: Apache-2.0
// `simgpu serve`: gives the files of a node to processes that reach it only by a socket
// (src/sim/state_socket.h).
#pragma once

#include <string>

#include "src/base/file.h"
#include "src/base/status.h"

namespace tessera::sim {

// Serves <root>/run/nvidia-persistenced/socket until `stop` is readable, then removes the socket.
// NOT_FOUND: no node at `root`; ALREADY_EXISTS: another process serves it. Threads: any.
Status ServeState(const std::string& root, const Fd& stop);

}  // namespace tessera::sim
