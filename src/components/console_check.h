// SPDX-License-Identifier: Apache-2.0
// Checks settings of the console that must be given together, or that exclude each other. With a
// wrong combination, tessera-console would exit when it starts, or ignore a setting. Threads: pure.
#pragma once

#include "src/base/status.h"
#include "src/components/settings.h"

namespace tessera::components {

// INVALID_ARGUMENT names a setting, and the setting that it lacks or excludes. OK if the console is
// not enabled. A setting may also be given as a flag in console.extraArgs.
Status CheckConsole(const ConsoleSettings& console);

}  // namespace tessera::components
