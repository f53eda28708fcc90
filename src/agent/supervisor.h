// SPDX-License-Identifier: Apache-2.0
// Keeps the agent alive inside its container. The kubelet waits longer and longer before it restarts a
// container that died again (10 s, 20 s, … 5 min), and all that time the node offers no GPU; a
// parent that does nothing else starts the agent again within milliseconds.
//
// Only an end by a signal is survived. An agent that exits, for a bad flag or an unusable folder, ends
// the container with its exit code, so that the kubelet and a person see it.
#pragma once

#include <functional>

#include "src/base/clock.h"

namespace tessera::agent {

struct SupervisorOptions {
  // Between two starts, if the one before lived shorter than `settled`; doubled each time.
  Duration first_wait = std::chrono::milliseconds(50);
  Duration longest_wait = std::chrono::seconds(5);
  Duration settled = std::chrono::seconds(10);
};

// Runs `agent` in a child process, again and again. Passes SIGTERM, SIGINT, SIGQUIT and SIGHUP on, reaps
// orphans as a first process must, and returns the child's exit code; 128 + signal where a signal ended it after
// we were told to stop. The child dies with its parent. REQUIRES: the process has one thread.
int Supervise(const std::function<int()>& agent, const SupervisorOptions& options = {});

}  // namespace tessera::agent
