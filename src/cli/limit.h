// SPDX-License-Identifier: Apache-2.0
// `tessera limit`: changes what containers of a pod may use of their GPUs, by annotations that the
// agent of the pod's node follows (src/device/limit_annotations.h). They are written with the
// rights of the person who asks. Pure. Private to this room.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/cli/view.h"
#include "src/formats/json.h"

namespace tessera::cli {

// What to write into each annotation: "" leaves it as it is, "none" takes it away.
struct NewLimits {
  std::string memory, compute;
};

// The patch of the pod. INVALID_ARGUMENT, with the way out: there is nothing to change, it is no
// limit, names a container or GPU that the pod does not have, or exceeds what it was granted.
Result<Json> LimitPatch(const ledger::PodEntry& pod, const NewLimits& limits);
// What the patch means, for people.
std::string LimitText(const ledger::PodEntry& pod, const NewLimits& limits);

}  // namespace tessera::cli
