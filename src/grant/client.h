// SPDX-License-Identifier: Apache-2.0
// The runtime's client of the agent. Blocks; opens one connection per request; uses no threads and
// only libc, so that it fits a small static program.
//
// Requests are idempotent: the agent gives the same container the same answer. If the agent is
// unreachable, or closes the connection before it answers, the client retries until its timeout.
#pragma once

#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/grant/message.h"

namespace tessera::grant {

// Returns the agent's error if it rejects the request. UNAVAILABLE: no process listened on
// `socket_path` within `timeout`; the message names the path. DEADLINE_EXCEEDED: no answer.
Result<Grant> RequestGrant(const std::string& socket_path, const GrantRequest& request,
                           Duration timeout);

}  // namespace tessera::grant
