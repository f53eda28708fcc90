// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/kube_binding_api.h"

#include <utility>

#include "src/ledger/pod_ask.h"

namespace tessera::scheduler {

kube::Operation KubeBindingApi::Bind(const kube::PodBinding& binding, kube::BeforeSend before_send,
                                     std::function<void(const Status&)> on_done) {
  return kube::BindPod(client_, binding, std::move(on_done), std::move(before_send));
}

kube::Operation KubeBindingApi::Read(const std::string& ns, const std::string& name,
                                     std::function<void(const Result<kube::PodObject>&)> on_done) {
  return client_.Get(kube::Pod(ns, name), [on_done = std::move(on_done)](Result<Json> json) {
    if (!json.ok()) return on_done(json.status());
    on_done(kube::Decode<kube::PodObject>(kube::RawObject(*std::move(json)), ledger::KeepOfPods()));
  });
}

kube::Operation KubeEvictionApi::Evict(const std::string& ns, const std::string& name,
                                       const Uid& uid, std::function<void(const Status&)> on_done) {
  const Json body = Json::MakeObject(
      {{"apiVersion", Json::String("policy/v1")},
       {"kind", Json::String("Eviction")},
       {"metadata",
        Json::MakeObject({{"name", Json::String(name)}, {"namespace", Json::String(ns)}})},
       {"deleteOptions",
        Json::MakeObject(
            {{"preconditions", Json::MakeObject({{"uid", Json::String(uid.view())}})}})}});
  return client_.Create(
      {kube::kPods, name, ns, "eviction"}, body,
      [on_done = std::move(on_done)](const Result<Json>& answer) { on_done(answer.status()); },
      before_send_);
}

}  // namespace tessera::scheduler
