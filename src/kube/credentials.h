// SPDX-License-Identifier: Apache-2.0
// Provides the credentials of the next request: a fixed token, a file that the kubelet rotates, or
// an exec plugin. A plugin runs on its own thread when its last result has expired or was rejected;
// all callers wait for the same run. Included only in src/kube. Threads: the runner's.
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
    std::string token;   // "": send none
    int generation = 0;  // increases with each new credential
  };
  using OnReady = std::function<void(Result<Credential>)>;
  using OnCertificate = std::function<void(const std::string& certificate, const std::string& key)>;

  // `on_certificate` is called before the first request that uses the certificate.
  CredentialSource(TaskRunner& runner, const Config& config, OnCertificate on_certificate);
  // Does not wait for a running plugin.
  ~CredentialSource();

  // Calls `on_ready` at once if the credential is known, else later, and not after this object is
  // destroyed.
  void Get(OnReady on_ready);
  // See TokenSource::Set.
  void SetToken(std::string token);
  // Call after a 401 for `credential`. Returns whether Get may provide another credential.
  bool RejectAndCheckRetry(const Credential& credential);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
