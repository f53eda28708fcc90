// SPDX-License-Identifier: Apache-2.0
// For tests and benchmarks: random objects, encoded as JSON and protobuf like the API server's,
// including fields that objects.h skips (images, volumes, managed fields) in realistic sizes.
#pragma once

#include <string>

#include "src/base/random.h"
#include "src/kube/objects.h"

namespace tessera::kube::testing {

PodObject SamplePod(Random& random, int number);
NodeObject SampleNode(Random& random, int number);
ConfigMapObject SampleConfigMap(Random& random, int number);
LeaseObject SampleLease(Random& random, int number);
PodDisruptionBudgetObject SampleBudget(Random& random, int number);

std::string JsonOf(const PodObject& pod);
std::string JsonOf(const NodeObject& node);
std::string JsonOf(const ConfigMapObject& map);
std::string JsonOf(const LeaseObject& lease);
std::string JsonOf(const PodDisruptionBudgetObject& budget);

// The protobuf message of an object, without the envelope.
std::string MessageOf(const PodObject& pod);
std::string MessageOf(const NodeObject& node);
std::string MessageOf(const ConfigMapObject& map);
std::string MessageOf(const LeaseObject& lease);
std::string MessageOf(const PodDisruptionBudgetObject& budget);

}  // namespace tessera::kube::testing
