// SPDX-License-Identifier: Apache-2.0
// The binder's requests through a client of the API server, which must outlive it.
#pragma once

#include <functional>
#include <string>

#include "src/scheduler/binder.h"

namespace tessera::scheduler {

class KubeBindingApi final : public BindingApi {
 public:
  explicit KubeBindingApi(kube::Client& client) : client_(client) {}

  kube::Operation Bind(const kube::PodBinding& binding,
                       std::function<void(const Status&)> on_done) override;
  kube::Operation Read(const std::string& ns, const std::string& name,
                       std::function<void(const Result<kube::PodObject>&)> on_done) override;

 private:
  kube::Client& client_;
};

}  // namespace tessera::scheduler
