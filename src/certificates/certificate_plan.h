// SPDX-License-Identifier: Apache-2.0
// Decides which certificate the webhook serves, and when the next certificate replaces it. All
// replicas share one set in a Secret (certificate_keeper.h).
//
// Each serving certificate has its own authority, whose key is discarded after it has signed. So
// the key cannot be stolen, and each rotation has the same three steps:
//
//   prepare   the next pair is created; its authority is added to the bundle
//   promote   after `overlap`, and once that bundle is published to the API servers, the next pair
//             is served. Replicas that still serve the old pair are trusted, too
//   forget    an expired authority is removed from the bundle
//
// If no pair is usable, a new pair is created and served at once, without overlap.
//
// Clocks may differ by `skew`: the validity of a certificate begins `skew` before its creation. A
// certificate is replaced when a third of its lifetime is left.
//
// Threads: sets of certificates are values, and each thread may use its own copy. The functions are
// pure, except for random numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/net/certificate.h"
#include "src/net/tls.h"

namespace tessera::certificates {

struct CertificateSet {
  std::string bundle;  // authorities to trust: of `serving`, of `next`, and of earlier pairs
  net::CertificatePair serving;
  net::CertificatePair next;  // empty: not prepared
  bool operator==(const CertificateSet&) const = default;
};

// REQUIRES: overlap < lifetime / 3.
struct CertificateOptions {
  std::vector<std::string> names;  // DNS names and addresses of the webhook
  Duration lifetime = std::chrono::hours(24 * 90);
  Duration overlap = std::chrono::hours(1);
  Duration skew = std::chrono::hours(24);
};

// "<service>.<ns>.svc", under which API servers call a Service, its shorter and longer forms, and
// `more`.
std::vector<std::string> ServiceNames(const std::string& service, const std::string& ns,
                                      const std::vector<std::string>& more);

// A certificate with which the port is opened before the real certificate exists, so that a port in
// use fails at start. No client trusts this certificate, and the server trusts no client.
Result<net::TlsOptions> PlaceholderTls(WallTime now);

struct CertificateStep {
  CertificateSet set;
  std::string description;  // for the log, such as "prepared the next certificate"
};
// The step from `current` that is due at `time`; nullopt if no step is due. `bundle_is_published`:
// every webhook configuration has the bundle of `current`. INTERNAL: no certificate can be made.
Result<std::optional<CertificateStep>> NextStep(const CertificateSet& current, WallTime time,
                                                bool bundle_is_published,
                                                const CertificateOptions& options);

}  // namespace tessera::certificates
