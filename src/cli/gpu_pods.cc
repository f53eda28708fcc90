// SPDX-License-Identifier: Apache-2.0
#include "src/cli/gpu_pods.h"

#include "src/cli/object_fields.h"
#include "src/device/request.h"

namespace tessera::cli {

bool RequestsGpus(const Json& pod) {
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : ItemsAt(pod, {"spec", list})) {
      for (const char* part : {"limits", "requests"}) {
        const Json* amounts = At(container, {"resources", part});
        if (amounts == nullptr || !amounts->is_object()) continue;
        for (const auto& [resource, unused] : amounts->members()) {
          if (device::IsGpuResource(resource)) return true;
        }
      }
    }
  }
  return false;
}

bool HasEnded(const Json& pod) {
  const std::string phase = TextAt(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

bool HoldsGpus(const Json& pod) {
  return !TextAt(pod, {"spec", "nodeName"}).empty() && !HasEnded(pod) && RequestsGpus(pod);
}

std::string NameOfPod(const Json& pod) {
  return TextAt(pod, {"metadata", "namespace"}) + "/" + TextAt(pod, {"metadata", "name"});
}

}  // namespace tessera::cli
