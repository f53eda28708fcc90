// SPDX-License-Identifier: Apache-2.0
// What a Pod object requests, parsed once for all decisions about the pod: devices, by any family
// of resource names (device/dialects.h), and the CPU and memory of the whole pod.
//
// Threads: requests are values, and each thread may use its own copy; the functions are pure.
// Errors: INVALID_ARGUMENT for users, with the container, the resource and the remedy.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/shared_pool.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/base/units.h"
#include "src/device/dialects.h"
#include "src/device/node.h"
#include "src/device/quantity.h"
#include "src/device/request.h"
#include "src/formats/json.h"
#include "src/kube/objects.h"

namespace tessera::ledger {

struct PodRequest {
  Uid uid;
  std::string ns, name;
  int32_t priority = 0;
  SharedValue<device::DeviceRequest> devices;  // pods of one workload mostly share it
  // The maximum over time of all running containers, as kube-scheduler computes it.
  device::MilliCpu cpu;
  Bytes memory;
  // Where the pod may run; only with ExtraKeptFields::scheduling_constraints.
  SharedValue<kube::NodeConstraints> constraints;

  // "ns/name".
  std::string Text() const { return ns + "/" + name; }
  bool operator==(const PodRequest&) const = default;
};

Result<PodRequest> PodRequestOf(const kube::PodObject& pod, const device::DialectOptions& options);

// Whether no container requests a GPU resource.
bool HasNoGpus(const kube::PodObject& pod);
// Whether a container of a Pod object requests a GPU resource.
bool RequestsGpus(const Json& pod);

// Fields that informers keep in addition to the annotations and resources that PodRequestOf and the
// ledger read.
struct ExtraKeptFields {
  bool pod_labels = false;  // all of them, because PodDisruptionBudgets may select by any label
  // Read by ClusterLedger::WhyLeftOut: constraints of pods, and all labels and resources of nodes.
  bool scheduling_constraints = false;
  bool pod_runs = false;  // PodObject::run
};
kube::KeptFields KeptPodFields(ExtraKeptFields extra = {});
kube::KeptFields KeptNodeFields(const device::NodeLabelKeys& labels, ExtraKeptFields extra = {});

}  // namespace tessera::ledger
