// SPDX-License-Identifier: Apache-2.0
// The lines of `tessera status` that are about one component or one node each; status.cc puts them
// together. Threads: pure functions. Included only by status.cc.
#pragma once

#include <optional>
#include <vector>

#include "src/cli/status.h"
#include "src/formats/json.h"

namespace tessera::cli {

// One line for each DaemonSet: "agent", "agent of pool a10".
std::vector<StatusLine> AgentLines(const InstallationObjects& objects);
StatusLine SchedulerLine(const InstallationObjects& objects);
StatusLine WebhookLine(const InstallationObjects& objects);
StatusLine KubeSchedulerLine(const InstallationObjects& objects);
// The operator and what its resource says; none if neither is there.
std::vector<StatusLine> OperatorLines(const InstallationObjects& objects);
// One line for each DaemonSet of driver containers.
std::vector<StatusLine> DriverLines(const InstallationObjects& objects);
// A node with GPUs, or whose agent or driver container does not run, has a line if something is
// wrong. The pods may be null.
std::optional<StatusLine> NodeLine(const Json& node, const Json* agent, const Json* driver);

}  // namespace tessera::cli
