// SPDX-License-Identifier: Apache-2.0
// Implements the requests of binder and repair on a kube::Client, which must outlive it.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "src/base/uid.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/repair.h"

namespace tessera::scheduler {

class KubeBindingApi final : public BindingApi {
 public:
  explicit KubeBindingApi(kube::Client& client) : client_(client) {}

  kube::Operation Bind(const kube::PodBinding& binding, kube::BeforeSend before_send,
                       std::function<void(const Status&)> on_done) override;
  kube::Operation Read(const std::string& ns, const std::string& name,
                       std::function<void(const Result<kube::PodObject>&)> on_done) override;

 private:
  kube::Client& client_;
};

class KubeEvictionApi final : public EvictionApi {
 public:
  KubeEvictionApi(kube::Client& client, kube::BeforeSend before_send)
      : client_(client), before_send_(std::move(before_send)) {}

  kube::Operation Evict(const std::string& ns, const std::string& name, const Uid& uid,
                        std::function<void(const Status&)> on_done) override;

 private:
  kube::Client& client_;
  const kube::BeforeSend before_send_;
};

}  // namespace tessera::scheduler
