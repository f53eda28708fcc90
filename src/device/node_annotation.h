// SPDX-License-Identifier: Apache-2.0
// The node annotation tessera.dev/devices (api/names.h), in which the agent publishes its GPUs.
// JSON, version 1:
//
//   {"version":1,"driver":"550.163.01","cuda":12040,
//    "gpus":[{"uuid":"GPU-…","index":0,"minor":0,"model":"NVIDIA A100-SXM4-80GB",
//             "bytes":85899345920,"pci":"0000:07:00.0","numa":0,"cc":"8.0",
//             "unhealthy":"XID 79: GPU has fallen off the bus",   or "suspect" if it is offered
//             "state":"recovering",          or "withheld"; left out if it is just unhealthy
//             "mig":[{"uuid":"MIG-…","profile":"1g.10gb","gi":7,"bytes":10737418240}, …]}, …],
//    "links":[[],["NV12+PIX"],["SYS","SYS"]],        row i: the links to GPUs 0 … i-1
//    "unidentified":1,"problem":"…","runtime_problem":"…","notes":["…"]}
//
// Members without content (no NUMA node, healthy, MIG off, …) are omitted. Equal inventories give
// equal text, so a writer can see whether the annotation must change.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/device/gpu.h"

namespace tessera::device {

inline constexpr int kNodeAnnotationVersion = 1;
inline constexpr size_t kMaxNodeAnnotationGpus = 64;
inline constexpr size_t kMaxMigSlices = 16;
// Suffices for 64 GPUs of seven slices each. Kubernetes allows 256 KiB for all annotations of an
// object.
inline constexpr size_t kMaxNodeAnnotationBytes = 128 << 10;

// RESOURCE_EXHAUSTED above these three limits. Truncates texts for operators (reasons, problem,
// notes) to 200 bytes, and keeps only the first 8 notes.
Result<std::string> EncodeNodeInventory(const NodeInventory& inventory);

// INVALID_ARGUMENT names the field and the reason: "gpus[3].uuid: is missing". Ignores unknown
// members, so that later releases may add some. Rejects another "version".
Result<NodeInventory> DecodeNodeInventory(std::string_view text);

}  // namespace tessera::device
