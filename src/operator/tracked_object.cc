// SPDX-License-Identifier: Apache-2.0
#include "src/operator/tracked_object.h"

namespace tessera::operators {
namespace {

constexpr std::string_view kWorkloads = "apps";

// The number of wanted pods is in the status of a DaemonSet, and in the spec of a Deployment.
WorkloadCounts CountsOf(const Json& object, int64_t generation) {
  const Json none = Json::MakeObject();
  const auto part = [&](std::string_view key) -> const Json& {
    const Json* found = object.Find(key);
    return found != nullptr && found->is_object() ? *found : none;
  };
  const Json& spec = part("spec");
  const Json& status = part("status");
  const bool daemons = status.Find("desiredNumberScheduled") != nullptr;
  const auto count = [&](std::string_view key) { return status.IntAt(key).value_or(0); };
  // Pods that are replaced only when they are deleted keep an older template until then.
  const Json* strategy = spec.Find("updateStrategy");
  const bool on_delete =
      strategy != nullptr && strategy->StringAt("type").value_or("") == "OnDelete";
  return {.desired = daemons ? count("desiredNumberScheduled") : spec.IntAt("replicas").value_or(1),
          .updated = on_delete ? count("desiredNumberScheduled")
                               : count(daemons ? "updatedNumberScheduled" : "updatedReplicas"),
          .available = count(daemons ? "numberAvailable" : "availableReplicas"),
          .observed = count("observedGeneration") >= generation};
}

}  // namespace

void TrackedObject::Prepare(kube::ListQuery* query) {
  if (query->type.group != kWorkloads) return kube::MetadataObject::Prepare(query);
  query->encoding = kube::Encoding::kJson;
}

Status DecodeObject(const kube::RawObject& raw, const kube::Keep& keep, TrackedObject* out) {
  RETURN_IF_ERROR(kube::DecodeObject(raw, keep, static_cast<kube::MetadataObject*>(out)));
  const Json* json = raw.json();
  const bool whole = json != nullptr && (json->Find("spec") != nullptr || json->Find("status"));
  if (whole) out->workload = CountsOf(*json, out->generation);
  return {};
}

}  // namespace tessera::operators
