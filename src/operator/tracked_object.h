// SPDX-License-Identifier: Apache-2.0
// What the operator keeps of an object that it has applied: metadata, and of a Deployment or
// DaemonSet how many of its pods are ready. Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/kube/client.h"
#include "src/kube/metadata_object.h"

namespace tessera::operators {

struct WorkloadCounts {
  int64_t desired = 0;
  int64_t updated = 0;    // run the newest template
  int64_t available = 0;  // ready for long enough
  bool observed = false;  // the controller has seen the newest spec

  bool ready() const { return observed && updated >= desired && available >= desired; }
  bool operator==(const WorkloadCounts&) const = default;
};

// For kube::Informer; of types in group apps the whole object is read, of others the metadata.
struct TrackedObject : kube::MetadataObject {
  std::optional<WorkloadCounts> workload;

  static void Prepare(kube::ListQuery* query);
  bool operator==(const TrackedObject&) const = default;
};
Status DecodeObject(const kube::RawObject& raw, const kube::Keep& keep, TrackedObject* out);

}  // namespace tessera::operators
