// SPDX-License-Identifier: Apache-2.0
// Makes the lines of `tessera status` for each component and each node; status.cc combines them.
// Threads: pure functions. Included only by status.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/cli/status.h"
#include "src/formats/json.h"

namespace tessera::cli {

// The objects of the installation that are missing or changed; no line if there are none.
std::vector<StatusLine> ObjectLines(const InstallationObjects& objects);
// How to restore missing objects with the tool that installed Tessera.
std::string FixOfMissing(const InstallationObjects& objects);
// One line for each DaemonSet: "agent", "agent of pool a10".
std::vector<StatusLine> AgentLines(const InstallationObjects& objects);
StatusLine SchedulerLine(const InstallationObjects& objects);
StatusLine WebhookLine(const InstallationObjects& objects);
StatusLine KubeSchedulerLine(const InstallationObjects& objects);
// The operator, and the state of its resource. No line if neither exists.
std::vector<StatusLine> OperatorLines(const InstallationObjects& objects);
// One line for each DaemonSet of driver containers.
std::vector<StatusLine> DriverLines(const InstallationObjects& objects);
// The problem of a node with GPUs, or of a node whose agent or driver container does not run;
// nullopt if the node works. `agent` and `driver` may be null; `fix_without_agent`: what to do if
// `agent` is null.
std::optional<StatusLine> NodeLine(const Json& node, const Json* agent, const Json* driver,
                                   const StringMap& warnings, const std::string& fix_without_agent);

}  // namespace tessera::cli
