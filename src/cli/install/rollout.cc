// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/rollout.h"

#include <algorithm>
#include <cstdint>

#include "src/cli/cluster_client.h"

namespace tessera::cli {
namespace {

int64_t NumberAt(const Json* part, std::string_view key, int64_t default_value = 0) {
  const Json* value = part == nullptr ? nullptr : part->Find(key);
  return value == nullptr ? default_value : value->ToInt().value_or(default_value);
}

// With the strategy OnDelete, pods of the old version stay until a user deletes them.
bool ReplacesPods(const Json& spec) {
  const Json* strategy = spec.Find("updateStrategy");
  return strategy == nullptr || strategy->StringAt("type").value_or("") != "OnDelete";
}

}  // namespace

std::string WhyNotRolledOut(const Json& object) {
  const ObjectId id = IdOf(object);
  const bool is_daemon_set = id.kind == "DaemonSet";
  if (!is_daemon_set && id.kind != "Deployment") return "";
  const Json* status = object.Find("status");
  const Json& spec = *object.Find("spec");
  const auto missing = [&](int64_t ready, int64_t wanted) {
    return fmt::format("{}: {} of {} pods ready", id.Text(), ready, wanted);
  };
  if (NumberAt(status, "observedGeneration") < NumberAt(object.Find("metadata"), "generation", 1)) {
    return fmt::format("{}: not yet observed", id.Text());
  }
  const int64_t wanted =
      is_daemon_set ? NumberAt(status, "desiredNumberScheduled") : NumberAt(&spec, "replicas", 1);
  const int64_t available =
      NumberAt(status, is_daemon_set ? "numberAvailable" : "availableReplicas");
  const int64_t updated =
      NumberAt(status, is_daemon_set ? "updatedNumberScheduled" : "updatedReplicas");
  const int64_t ready = ReplacesPods(spec) ? std::min(available, updated) : available;
  return ready < wanted ? missing(ready, wanted) : "";
}

}  // namespace tessera::cli
