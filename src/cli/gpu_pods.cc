// SPDX-License-Identifier: Apache-2.0
#include "src/cli/gpu_pods.h"

#include <algorithm>

#include "src/device/request.h"
#include "src/kube/informer.h"
#include "src/ledger/pod_request.h"

namespace tessera::cli {

bool HasEnded(const Json& pod) {
  const std::string phase = TextAt(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

bool HoldsGpus(const Json& pod) {
  return !TextAt(pod, {"spec", "nodeName"}).empty() && !HasEnded(pod) && ledger::RequestsGpus(pod);
}

std::string ReasonForNoShare(const kube::PodObject& pod) {
  const std::string name = "pod " + kube::KeyOf(pod.meta);
  if (pod.ended()) {
    return fmt::format("{} has ended (phase {}): it no longer holds a share of a GPU", name,
                       pod.phase == kube::PodPhase::kSucceeded ? "Succeeded" : "Failed");
  }
  const Result<ledger::PodRequest> request = ledger::PodRequestOf(pod, {});
  if (!request.ok()) {
    return fmt::format("{} gets no share of a GPU: {}", name, request.status().message());
  }
  if (!request->devices->requests_devices()) return name + " requests no share of a GPU";
  const bool requests_share = std::ranges::any_of(
      request->devices->containers, [](const device::ContainerRequest& container) {
        return container.dialect != device::Dialect::kNone && !container.exclusive;
      });
  return requests_share ? "" : name + " requests whole GPUs: only shares are limited";
}

std::string NameOfPod(const Json& pod) {
  return TextAt(pod, {"metadata", "namespace"}) + "/" + TextAt(pod, {"metadata", "name"});
}

}  // namespace tessera::cli
