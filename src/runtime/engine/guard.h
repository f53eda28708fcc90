// SPDX-License-Identifier: Apache-2.0
// Stands by while another process changes an engine's configuration. The kubelet starts containers
// through the engine. So where the engine does not come back and the whole container of that
// process is killed, there is no next run that could put the files back; the guard, in a container
// of its own, does.
//
// Not for: finishing what was begun. The next run does that, once the engine serves. Threads: one.
#pragma once

#include <functional>

#include "src/runtime/engine/configurator.h"

namespace tessera::engine {

// How often the record is read.
inline constexpr Duration kGuardInterval = std::chrono::seconds(2);

// Does not return. `options` gives the options anew for each look, because the engine's
// configuration names its socket. `host` must outlive the call.
[[noreturn]] void GuardEngine(const std::function<ConfigureOptions()>& options,
                              const HostRoot* host);

}  // namespace tessera::engine
