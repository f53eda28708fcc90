// SPDX-License-Identifier: Apache-2.0
// `tessera limit`: changes the GPU limits of a pod's containers by annotations, which the agent of
// the node applies (src/device/limit_annotations.h). The command writes the annotations with the
// user's credentials. Pure. Included only in src/cli.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/cli/usage.h"
#include "src/cli/view.h"
#include "src/formats/json.h"

namespace tessera::cli {

// The value of each annotation: "" leaves it unchanged, "none" removes it.
struct NewLimits {
  std::string memory, compute;
};

// INVALID_ARGUMENT, with the remedy: no limit is given, or one is invalid for every pod.
Status CheckNewLimits(const NewLimits& limits);
// The patch of the pod. INVALID_ARGUMENT, with the remedy: no limit is given, a limit is invalid,
// exceeds the grant, or names a container or GPU that the pod does not have.
Result<Json> LimitPatch(const ledger::PodEntry& pod, const NewLimits& limits);
// `uses`: the usage of the pod's containers, as the agent reports it. FAILED_PRECONDITION: a
// container to which one of the valid `limits` applies has no limiter.
Status CheckLimited(const std::vector<ContainerUse>& uses, const NewLimits& limits);
// Describes the patch for the user, and which containers of `uses` hold more than the new limit.
std::string LimitText(const ledger::PodEntry& pod, const NewLimits& limits,
                      const std::vector<ContainerUse>& uses = {});

}  // namespace tessera::cli
