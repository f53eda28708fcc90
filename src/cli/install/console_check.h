// SPDX-License-Identifier: Apache-2.0
// Checks settings of the console that belong together. tessera-console would end at its start, or
// ignore a setting that is given alone. Threads: pure.
#pragma once

#include "src/base/status.h"
#include "src/components/settings.h"

namespace tessera::cli {

// INVALID_ARGUMENT names the setting, and the setting that is missing or too many. OK if the
// console is not enabled. A setting may also be given as a flag in console.extraArgs.
Status CheckConsole(const components::ConsoleSettings& console);

}  // namespace tessera::cli
