// SPDX-License-Identifier: Apache-2.0
// What a Pod object asks for, read once for all decisions about it: its devices in whatever dialect
// it was written, and what the whole pod takes of the host.
//
// Threads: values and pure functions. Errors: INVALID_ARGUMENT for people, naming the container,
// the resource and the way out.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/base/units.h"
#include "src/device/dialects.h"
#include "src/device/node.h"
#include "src/device/quantity.h"
#include "src/device/request.h"
#include "src/kube/objects.h"

namespace tessera::ledger {

struct PodAsk {
  Uid uid;
  std::string ns, name;
  int32_t priority = 0;
  device::Request request;
  // Of all containers together, as kube-scheduler counts: the most that run at one time.
  device::MilliCpu cpu;
  Bytes memory;

  // "ns/name".
  std::string Text() const { return ns + "/" + name; }
  bool operator==(const PodAsk&) const = default;
};

Result<PodAsk> PodAskOf(const kube::PodObject& pod, const device::DialectOptions& options);

// Whether no container names a resource of GPUs.
bool HasNoGpus(const kube::PodObject& pod);

// What PodAskOf and the ledger read of labels, annotations and resources: for informers.
// `labels`: of pods, too, by any of which PodDisruptionBudgets may select them.
kube::Keep KeepOfPods(bool labels = false);
kube::Keep KeepOfNodes(const device::NodeLabelKeys& labels);

}  // namespace tessera::ledger
