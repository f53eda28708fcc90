// SPDX-License-Identifier: Apache-2.0
// Decodes the structs of objects.h from both encodings. Included only in src/kube.
#pragma once

#include <string_view>

#include "src/kube/objects.h"

namespace tessera::kube {

Status FromJson(const Json& object, const KeptFields& kept, ObjectMeta* out);
Status FromJson(const Json& object, const KeptFields& kept, PodObject* out);
Status FromJson(const Json& object, const KeptFields& kept, NodeObject* out);
Status FromJson(const Json& object, const KeptFields& kept, ConfigMapObject* out);
Status FromJson(const Json& object, const KeptFields& kept, LeaseObject* out);
Status FromJson(const Json& object, const KeptFields& kept, PodDisruptionBudgetObject* out);

Status FromProtobuf(std::string_view message, const KeptFields& kept, ObjectMeta* out);
Status FromProtobuf(std::string_view message, const KeptFields& kept, PodObject* out);
Status FromProtobuf(std::string_view message, const KeptFields& kept, NodeObject* out);
Status FromProtobuf(std::string_view message, const KeptFields& kept, ConfigMapObject* out);
Status FromProtobuf(std::string_view message, const KeptFields& kept, LeaseObject* out);
Status FromProtobuf(std::string_view message, const KeptFields& kept,
                    PodDisruptionBudgetObject* out);

// The phase with this name in the API; kUnknown for any other text.
PodPhase PodPhaseOf(std::string_view text);
// Computes PodObject::failed_attempt_hash. Returns 0 for a gated pod, because the scheduler has not
// tried to place it.
uint64_t FailedAttemptHash(std::string_view reason, std::string_view message);

// The part of a container's status that PodObject::run_summary needs.
struct ContainerRunState {
  std::string waiting;  // the reason; "" if the container does not wait
  std::string ended;    // the reason; "" if the container has not ended
  int64_t exit_code = 0;
  int64_t restarts = 0;
};
void AddToSummary(const ContainerRunState& container, PodRunSummary* summary);

inline bool Keeps(const KeptFields::Predicate& predicate, std::string_view key) {
  return !predicate || predicate(key);
}

}  // namespace tessera::kube
