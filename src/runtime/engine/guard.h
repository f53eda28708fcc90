// SPDX-License-Identifier: Apache-2.0
// Watches a run of Configurator from a separate container. The kubelet starts containers through
// the engine. If the engine stays down and the container of that run is killed, the kubelet cannot
// start a next run; the guard then restores the files.
//
// Does not finish an interrupted run: the next run does that once the engine serves. Threads: one.
#pragma once

#include <functional>

#include "src/runtime/engine/configurator.h"

namespace tessera::engine {

// How often the record is read.
inline constexpr Duration kGuardInterval = std::chrono::seconds(2);

// Does not return. Calls `options` before each check, because the engine's configuration names its
// socket. `host` must outlive the call.
[[noreturn]] void GuardEngine(const std::function<ConfigureOptions()>& options,
                              const HostRoot* host);

}  // namespace tessera::engine
