// SPDX-License-Identifier: Apache-2.0
// The work of sched-replay: read, replay, print.
#pragma once

#include "src/base/status.h"
#include "src/cmd/sched-replay/flags.h"

namespace tessera {

// Replays the trace and prints the results.
Status Replay(const ReplayFlags& flags);

}  // namespace tessera
