// SPDX-License-Identifier: Apache-2.0
// Keeps the webhook's certificates: one set for all replicas in a Secret, which any replica creates
// and renews (certificate_plan.h), and its bundle in the webhook configurations.
//
// No leader is needed. A write succeeds only on the Secret version that was read, so of two
// replicas one writes and the other reads the result. All replicas publish the bundle of that
// Secret, so they do not revert each other's patches. A bundle that another writer removes, as
// `kubectl replace` does, is restored within a `period`.
//
// Threads: the client's runner, which also calls `on_certificate`. The client must outlive the
// keeper; `on_certificate` must not destroy the keeper. Cost: a GET of the Secret and of each
// configuration every `period`. Logs each completed step and each error; after an error the keeper
// retries sooner.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/certificates/certificate_plan.h"
#include "src/formats/json.h"
#include "src/kube/client.h"
#include "src/net/certificate.h"

namespace tessera::certificates {

struct CertificateKeeperOptions {
  std::string ns;
  std::string secret;
  CertificateOptions certificate;
  // Configurations that do not exist are skipped.
  std::vector<kube::ObjectRef> configurations;
  Duration period = std::chrono::seconds(30);
};

// A JSON patch that sets the bundle (PEM) of every webhook of the configuration; nullopt if all
// webhooks have it. Changes nothing else, because the administrator sets rules and addresses
// (deploy/chart). The patch fails if the webhooks have been reordered since `configuration` was
// read. Pure.
std::optional<Json> BundlePatch(const Json& configuration, const std::string& bundle);

class CertificateKeeper {
 public:
  // Serve `pair` from now on. The Secret contains it.
  using OnCertificate = std::function<void(const net::CertificatePair& pair)>;

  // Posts the first round of requests to the runner.
  CertificateKeeper(kube::Client& client, CertificateKeeperOptions options,
                    OnCertificate on_certificate);
  ~CertificateKeeper();
  CertificateKeeper(const CertificateKeeper&) = delete;
  CertificateKeeper& operator=(const CertificateKeeper&) = delete;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::certificates
