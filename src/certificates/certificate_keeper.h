// SPDX-License-Identifier: Apache-2.0
// Keeps the certificates of the webhook: one set for all replicas in a Secret, made and renewed by
// whichever comes first (certificate_plan.h), and its bundle in the webhook configurations.
//
// No leader is needed. The Secret is written only in the version that was read, so of two replicas
// one writes and the other reads what the first one wrote; and from the same Secret all replicas
// want the same bundle, so they do not undo each other's patches. What somebody else takes away, a
// `kubectl replace` of the configurations, say, is back within a `period`.
//
// Threads, callbacks: the client's runner; none after it is gone. Ownership: the client and the
// delegate outlive it; a delegate must not destroy it inside a call. Cost: a GET of the Secret and
// of each configuration every `period`. Errors are told and tried again, sooner than that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/certificates/certificate_plan.h"
#include "src/kube/client.h"
#include "src/net/certificate.h"

namespace tessera::certificates {

struct CertificateKeeperOptions {
  std::string ns;
  std::string secret;
  CertificateOptions certificate;
  // Those that there are not are passed over.
  std::vector<kube::ObjectRef> configurations;
  Duration period = std::chrono::seconds(30);
};

class CertificateKeeper {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // To be shown from now on. It stands in the Secret already.
    virtual void OnCertificate(const net::CertificatePair& pair) = 0;
    // For logs: what was done, and what did not work and is tried again.
    virtual void OnProgress(const std::string& what) = 0;
    virtual void OnTrouble(const Status& status) = 0;
  };

  // Starts at once, from a task of its own.
  CertificateKeeper(kube::Client& client, CertificateKeeperOptions options, Delegate& delegate);
  ~CertificateKeeper();
  CertificateKeeper(const CertificateKeeper&) = delete;
  CertificateKeeper& operator=(const CertificateKeeper&) = delete;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::certificates
