// SPDX-License-Identifier: Apache-2.0
// Keeps the agent alive inside its container. The kubelet waits ever longer before it restarts a
// container that died again (10 s, 20 s, … 5 min), and the node offers no GPU meanwhile. A parent
// that does nothing else starts the agent again within milliseconds.
//
// Restarts the agent only after it was killed by a signal. If the agent exits, for example because
// of an invalid flag, the container ends with the agent's exit code. So the kubelet and the
// administrator see the code.
#pragma once

#include <functional>

#include "src/base/clock.h"

namespace tessera::agent {

struct SupervisorOptions {
  // Wait before the first restart. Doubles with each restart of a child that ran for less than
  // `stable_after`.
  Duration first_wait = std::chrono::milliseconds(50);
  Duration longest_wait = std::chrono::seconds(5);
  Duration stable_after = std::chrono::seconds(10);
};

// Runs `agent` in a child process, and again after each end by a signal. Passes SIGTERM, SIGINT,
// SIGQUIT and SIGHUP on, and reaps orphans as a first process must. Returns the child's exit code;
// 128 + signal if a signal ended the child after SIGTERM, SIGINT or SIGQUIT was passed on. The
// child dies with its parent. REQUIRES: the process has one thread.
int Supervise(const std::function<int()>& agent, const SupervisorOptions& options = {});

}  // namespace tessera::agent
