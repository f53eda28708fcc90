// SPDX-License-Identifier: Apache-2.0
// Inside the room: what to show the API server with the next request. A fixed token, a file that
// the kubelet rotates, or an exec plugin, which runs on a thread of its own when its last answer
// has expired or was refused. Callers that ask meanwhile wait for that one run. Threads: the
// runner's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/kube/config.h"
#include "src/kube/exec_plugin.h"

namespace tessera::kube {

class CredentialSource {
 public:
  struct Credential {
    std::string token;  // "": none to send
    int generation = 0;
  };
  using OnReady = std::function<void(Result<Credential>)>;
  using OnCertificate = std::function<void(const std::string& certificate, const std::string& key)>;

  // `on_certificate` is called before the first request that shall show it.
  CredentialSource(TaskRunner& runner, const Config& config, OnCertificate on_certificate);
  // Does not wait for a plugin that runs.
  ~CredentialSource();

  // Called at once where the answer is known, later otherwise, and not after we are gone.
  void Get(OnReady on_ready);
  // The server said 401. Whether another credential may be had from Get.
  bool Refused(const Credential& credential);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
