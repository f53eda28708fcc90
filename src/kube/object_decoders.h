// SPDX-License-Identifier: Apache-2.0
// Inside the room: objects.h out of each of the two encodings.
#pragma once

#include <string_view>

#include "src/kube/objects.h"

namespace tessera::kube {

Status FromJson(const Json& object, const Keep& keep, ObjectMeta* out);
Status FromJson(const Json& object, const Keep& keep, PodObject* out);
Status FromJson(const Json& object, const Keep& keep, NodeObject* out);
Status FromJson(const Json& object, const Keep& keep, ConfigMapObject* out);
Status FromJson(const Json& object, const Keep& keep, LeaseObject* out);
Status FromJson(const Json& object, const Keep& keep, PodDisruptionBudgetObject* out);

Status FromMessage(std::string_view message, const Keep& keep, ObjectMeta* out);
Status FromMessage(std::string_view message, const Keep& keep, PodObject* out);
Status FromMessage(std::string_view message, const Keep& keep, NodeObject* out);
Status FromMessage(std::string_view message, const Keep& keep, ConfigMapObject* out);
Status FromMessage(std::string_view message, const Keep& keep, LeaseObject* out);
Status FromMessage(std::string_view message, const Keep& keep, PodDisruptionBudgetObject* out);

// The same for both: what a text of the API stands for.
PodPhase PodPhaseOf(std::string_view text);
// PodObject::failed_attempt. A pod whose gates are not lifted was not attempted: 0.
uint64_t FailedAttempt(std::string_view reason, std::string_view message);
// INVALID_ARGUMENT for one that there is not.
Result<LabelSelector::Operator> OperatorOf(std::string_view text);

inline bool Keeps(const Keep::Predicate& predicate, std::string_view key) {
  return !predicate || predicate(key);
}

}  // namespace tessera::kube
