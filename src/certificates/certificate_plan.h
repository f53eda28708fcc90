// SPDX-License-Identifier: Apache-2.0
// Which certificate the webhook shows now, and when the next one takes its place. All replicas
// share one set in a Secret (certificate_keeper.h).
//
// Each serving certificate has an authority of its own, whose key is discarded after it has signed.
// So the key cannot be stolen, and each rotation has the same three steps:
//
//   prepare   a next pair is made; its authority goes into the bundle beside the old one
//   promote   after `overlap`, and once API servers are known to have that bundle, the next pair is
//             shown. Replicas that still show the old one are trusted, too
//   forget    an authority leaves the bundle when it has expired
//
// Without a usable pair there is no overlap: a pair is made and shown at once.
//
// Threads: values and pure functions, but for random numbers. Clocks may be wrong by `skew`:
// certificates are valid from that long before they are made, and are replaced a third of their
// life before their end.
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
  std::string bundle;  // authorities to trust: of `serving`, of `next`, and earlier ones
  net::CertificatePair serving;
  net::CertificatePair next;  // empty: not prepared
  bool operator==(const CertificateSet&) const = default;
};

// overlap < lifetime / 3.
struct CertificateOptions {
  std::vector<std::string> names;  // DNS names and addresses by which the webhook is called
  Duration lifetime = std::chrono::hours(24 * 90);
  Duration overlap = std::chrono::hours(1);
  Duration skew = std::chrono::hours(24);
};

// "<service>.<ns>.svc", by which API servers call a Service, its shorter and longer forms, and
// `more`.
std::vector<std::string> ServiceNames(const std::string& service, const std::string& ns,
                                      const std::vector<std::string>& more);

// For serving until there is a certificate: no caller trusts it, and it trusts none. So a port that
// is taken is found at the start.
Result<net::TlsOptions> PlaceholderTls(WallTime now);

struct CertificateStep {
  CertificateSet set;
  std::string what;  // for the log: "prepared the next certificate"
};
// The step from `now` that is due at this time; nothing where none is. `bundle_is_out`: API servers
// have its bundle. INTERNAL where no certificate can be made.
Result<std::optional<CertificateStep>> NextStep(const CertificateSet& now, WallTime time,
                                                bool bundle_is_out,
                                                const CertificateOptions& options);

}  // namespace tessera::certificates
