// SPDX-License-Identifier: Apache-2.0
// The fields of nodes with GPUs and of driver pods that the operator keeps, for kube::Informer, and
// the fields of a node's pods that it reads before it evicts them. Used only if the operator
// manages drivers.
//
// Threads: states are values, and each thread may use its own copy; the functions are pure. Errors:
// INVALID_ARGUMENT names the object.
#pragma once

#include <set>
#include <string>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"
#include "src/kube/raw_object.h"
#include "src/operator/driver/fleet.h"

namespace tessera::operators {

struct DriverNodeState {
  kube::ObjectMeta meta;
  driver::FleetNode node;

  static void Prepare(kube::ListQuery* query);
  bool operator==(const DriverNodeState&) const = default;
};
Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, DriverNodeState* out);
// `selectors`: the labels by which pools select nodes.
kube::KeptFields KeptFieldsOfDriverNodes(std::set<std::string, std::less<>> selectors);

struct DriverPodState {
  kube::ObjectMeta meta;
  driver::FleetPod pod;

  static void Prepare(kube::ListQuery* query);
  bool operator==(const DriverPodState&) const = default;
};
Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, DriverPodState* out);
kube::KeptFields KeptFieldsOfDriverPods();

// A pod of a node that is to be upgraded. `wait_for`: labels of the pods that the upgrade waits
// for.
driver::UpgradePod UpgradePodOf(const Json& pod, const StringMap& wait_for);

}  // namespace tessera::operators
