// SPDX-License-Identifier: Apache-2.0
// What sched-replay does: read, replay, print.
#pragma once

#include "src/base/status.h"
#include "src/cmd/sched-replay/flags.h"

namespace tessera {

// Prints what the flags ask for.
Status Replay(const ReplayFlags& flags);

}  // namespace tessera
