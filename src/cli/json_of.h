// SPDX-License-Identifier: Apache-2.0
// What several commands say in JSON. Private to this room.
#pragma once

#include <cstddef>

#include "src/cli/view.h"
#include "src/formats/json.h"

namespace tessera::cli {

inline Json JsonOf(size_t number) { return Json::Int(static_cast<int64_t>(number)); }

// uuid, index, model, node, bytes, milli and, where it is not well, why.
Json JsonOfDevice(const DeviceView& device);
// namespace, name, uid, and what it has of a device.
Json JsonOfHolding(const Holding& holding);
// All that `tessera pods -o json` says of a pod.
Json JsonOfPod(const View& view, const ledger::PodEntry& pod);

}  // namespace tessera::cli
