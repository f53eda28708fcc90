// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/kube_binding_api.h"

#include <utility>

#include "src/ledger/pod_ask.h"

namespace tessera::scheduler {

kube::Operation KubeBindingApi::Bind(const kube::PodBinding& binding,
                                     std::function<void(const Status&)> on_done) {
  return kube::BindPod(client_, binding, std::move(on_done));
}

kube::Operation KubeBindingApi::Read(const std::string& ns, const std::string& name,
                                     std::function<void(const Result<kube::PodObject>&)> on_done) {
  return client_.Get(kube::Pod(ns, name), [on_done = std::move(on_done)](Result<Json> json) {
    if (!json.ok()) return on_done(json.status());
    on_done(kube::Decode<kube::PodObject>(kube::RawObject(*std::move(json)), ledger::KeepOfPods()));
  });
}

}  // namespace tessera::scheduler
