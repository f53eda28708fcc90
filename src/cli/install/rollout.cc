// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/rollout.h"

#include <algorithm>
#include <cstdint>

#include "src/cli/cluster_client.h"
#include "src/cli/object_fields.h"

namespace tessera::cli {
namespace {

// With the strategy OnDelete, pods of the old version stay until a user deletes them.
bool ReplacesPods(const Json& object) {
  return TextAt(object, {"spec", "updateStrategy", "type"}) != "OnDelete";
}

}  // namespace

std::string WhyNotRolledOut(const Json& object) {
  const ObjectId id = IdOf(object);
  const bool is_daemon_set = id.kind == "DaemonSet";
  if (!is_daemon_set && id.kind != "Deployment") return "";
  const auto missing = [&](int64_t ready, int64_t wanted) {
    return fmt::format("{}: {} of {} pods ready", id.Text(), ready, wanted);
  };
  if (NumberAt(object, {"status", "observedGeneration"}) <
      NumberAt(object, {"metadata", "generation"}, 1)) {
    return fmt::format("{}: not yet observed", id.Text());
  }
  const int64_t wanted = is_daemon_set ? NumberAt(object, {"status", "desiredNumberScheduled"})
                                       : NumberAt(object, {"spec", "replicas"}, 1);
  const int64_t available =
      NumberAt(object, {"status", is_daemon_set ? "numberAvailable" : "availableReplicas"});
  const int64_t updated =
      NumberAt(object, {"status", is_daemon_set ? "updatedNumberScheduled" : "updatedReplicas"});
  const int64_t ready = ReplacesPods(object) ? std::min(available, updated) : available;
  return ready < wanted ? missing(ready, wanted) : "";
}

}  // namespace tessera::cli
