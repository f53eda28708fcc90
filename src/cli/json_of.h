// SPDX-License-Identifier: Apache-2.0
// JSON objects that several commands share. Included only in src/cli.
#pragma once

#include <cstddef>

#include "src/cli/view.h"
#include "src/formats/json.h"

namespace tessera::cli {

inline Json JsonOf(size_t number) { return Json::Int(static_cast<int64_t>(number)); }

// uuid, index, model, node, bytes, milli and, if unhealthy, the reason.
Json JsonOfDevice(const DeviceView& device);
// namespace, name, uid, and its share of the device.
Json JsonOfPodShare(const PodShare& pod_share);
// A pod of `tessera pods -o json`.
Json JsonOfPod(const ClusterView& view, const ledger::PodEntry& pod);

}  // namespace tessera::cli
