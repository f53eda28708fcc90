// SPDX-License-Identifier: Apache-2.0
// Keeps the certificates of the extender's port (authority_plan.h): the authorities in a Secret
// that all replicas share, kube-scheduler's certificate in a Secret for the administrator, and this
// replica's certificate in memory.
//
// Works in every replica, without a leader (shared_secret.h). Threads: the client's runner, also
// for callbacks; no callback runs after the destruction. Ownership: client and delegate outlive
// this object; the delegate must not destroy it inside a call. Cost: three GETs every `period`.
// After an error, which is reported, the next round comes earlier.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/certificates/authority_plan.h"
#include "src/kube/client.h"
#include "src/net/tls.h"

namespace tessera::scheduler {

struct ExtenderCertificateOptions {
  std::string ns;
  std::string service;  // the Service under whose names and addresses kube-scheduler connects
  std::vector<std::string> extra_addresses;  // addresses of this replica besides the Service's
  std::string authority_secret;              // holds private keys of authorities: only for replicas
  std::string client_secret;                 // ca.crt, tls.crt and tls.key for kube-scheduler
  certificates::AuthorityOptions authority;
  Duration period = std::chrono::seconds(30);
};

class ExtenderCertificates {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // The port serves with `tls` from now on; it requests a client certificate.
    virtual void OnTls(const net::TlsOptions& tls) = 0;
    // For logs.
    virtual void OnCertificateProgress(const std::string& what) = 0;
    virtual void OnCertificateError(const Status& status) = 0;
  };

  // Starts at once, in its own task.
  ExtenderCertificates(kube::Client& client, ExtenderCertificateOptions options,
                       Delegate& delegate);
  ~ExtenderCertificates();
  ExtenderCertificates(const ExtenderCertificates&) = delete;
  ExtenderCertificates& operator=(const ExtenderCertificates&) = delete;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::scheduler
