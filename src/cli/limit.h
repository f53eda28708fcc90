// SPDX-License-Identifier: Apache-2.0
// `tessera limit`: changes what containers of a pod may use of their GPUs, by the annotation that
// the agent of the pod's node follows (src/device/memory_limit.h). It is written with the rights of
// the person who asks. Pure. Private to this room.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/cli/view.h"
#include "src/formats/json.h"

namespace tessera::cli {

// The patch of the pod; "none" takes the annotation away. INVALID_ARGUMENT, with the way out: it is
// no limit, names a container or GPU that the pod does not have, or exceeds what it was granted.
Result<Json> LimitPatch(const ledger::PodEntry& pod, const std::string& memory);
// What the patch means, for people.
std::string LimitText(const ledger::PodEntry& pod, const std::string& memory);

}  // namespace tessera::cli
