// SPDX-License-Identifier: Apache-2.0
#include "src/kube/binding.h"

#include <utility>

namespace tessera::kube {

Operation BindPod(Client& client, const PodBinding& binding,
                  std::function<void(const Status&)> on_done, BeforeSend before_send) {
  Json metadata = Json::MakeObject({{"name", Json::String(binding.pod)},
                                    {"namespace", Json::String(binding.ns)},
                                    {"uid", Json::String(binding.uid.str())}});
  // The API server copies the annotations to the pod in the transaction that sets its node, and
  // rejects the binding if the pod has another UID (setPodNodeAndMetadata in
  // pkg/registry/core/pod/storage).
  if (!binding.annotations.empty()) {
    metadata.Set("annotations", Json::StringObject(binding.annotations));
  }
  const Json body =
      Json::MakeObject({{"apiVersion", Json::String("v1")},
                        {"kind", Json::String("Binding")},
                        {"metadata", std::move(metadata)},
                        {"target", Json::MakeObject({{"apiVersion", Json::String("v1")},
                                                     {"kind", Json::String("Node")},
                                                     {"name", Json::String(binding.node)}})}});
  return client.Create(
      {kPods, binding.pod, binding.ns, "binding"}, body,
      [on_done = std::move(on_done)](const Result<Json>& answer) { on_done(answer.status()); },
      {.before_send = std::move(before_send)});
}

}  // namespace tessera::kube
