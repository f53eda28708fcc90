// SPDX-License-Identifier: Apache-2.0
// Which certificate the webhook shows now, and when another one takes its place. All replicas share
// one set, which stands in a Secret (certificate_keeper.h).
//
// Each serving certificate has an authority of its own, whose key is thrown away once it has
// signed. So nobody can steal it, and a rotation is always the same three steps:
//
//   prepare   a next pair is made; its authority goes into the bundle beside the old one
//   promote   an `overlap` later, and once API servers are known to have that bundle, the next pair
//             is the one to show. Whoever still shows the old one is trusted, too
//   forget    an authority leaves the bundle when it has expired
//
// With nothing usable there is nothing to overlap with: a pair is made and shown at once.
//
// Threads: values and pure functions, but for random numbers. Clocks may be wrong by `skew`:
// certificates count from that much before they are made, and are replaced a third of their life
// before they end.
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
  net::CertificatePair next;  // empty: none is prepared
  bool operator==(const CertificateSet&) const = default;
};

// overlap < lifetime / 3.
struct CertificateOptions {
  std::vector<std::string> names;  // DNS names and addresses by which the webhook is called
  Duration lifetime = std::chrono::hours(24 * 90);
  Duration overlap = std::chrono::hours(1);
  Duration skew = std::chrono::hours(24);
};

// "<service>.<ns>.svc", by which API servers call it, the shorter and longer forms, and `more`.
std::vector<std::string> ServiceNames(const std::string& service, const std::string& ns,
                                      const std::vector<std::string>& more);

// To serve with until there is a certificate: no caller trusts it, and it trusts none. A port that
// is taken is so found at once.
Result<net::TlsOptions> PlaceholderTls(WallTime now);

struct CertificateStep {
  CertificateSet set;
  std::string what;  // for the log: "prepared the next certificate"
};
// What `now` turns into at this time; nothing: it stays. `bundle_is_out`: API servers were seen to
// have its bundle. INTERNAL where no certificate can be made.
Result<std::optional<CertificateStep>> NextStep(const CertificateSet& now, WallTime time,
                                                bool bundle_is_out,
                                                const CertificateOptions& options);

}  // namespace tessera::certificates
