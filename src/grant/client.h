// SPDX-License-Identifier: Apache-2.0
// Asks the agent, from the runtime. Blocking, one connection per question, no threads and nothing
// but libc below it, so that it can live in a small static program.
//
// A question may be asked again: the agent gives the same container the same answer. So where the
// agent is away, or goes away before it has answered, the client tries again until its deadline.
#pragma once

#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/grant/message.h"

namespace tessera::grant {

// The agent's own error where it refused. UNAVAILABLE: nobody listened on `socket_path` until the
// deadline; the message names the path. DEADLINE_EXCEEDED: somebody listened and did not answer.
Result<Grant> Ask(const std::string& socket_path, const Request& request, Duration deadline);

// OK when an agent answers. Errors as above.
Status Ping(const std::string& socket_path, Duration deadline);

}  // namespace tessera::grant
