// SPDX-License-Identifier: Apache-2.0
// Decides which authority signs the certificates of the extender's port, and when each certificate
// is replaced. Both sides of a connection present a certificate: tessera-scheduler as the server,
// kube-scheduler as the client.
//
// kube-scheduler reads its trusted authorities at start, and its own certificate at each new
// connection. So an authority lasts for years, and its key is kept, unlike the webhook's
// (certificate_plan.h):
//
//   serving   valid for 90 days; each replica signs its own and keeps it in memory
//   client    valid for a year; the newest authority signs it
//   authority valid for ten years. When a third of that is left, a newer authority is added. The
//             older authority signs serving certificates as long as it outlives them, so that
//             kube-scheduler has years to read both
//
// Each certificate is replaced when a third of its lifetime is left. Clocks may differ by `skew`.
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

namespace tessera::certificates {

struct AuthorityOptions {
  Duration authority_lifetime = std::chrono::hours(24 * 3650);
  Duration serving_lifetime = std::chrono::hours(24 * 90);
  Duration client_lifetime = std::chrono::hours(24 * 365);
  Duration skew = std::chrono::hours(24);
};

struct Authorities {
  net::CertificatePair newest;
  net::CertificatePair older;  // empty: there is only one authority
  bool operator==(const Authorities&) const = default;

  // The authorities that both sides trust.
  std::string bundle() const { return newest.certificate + older.certificate; }
};

// Each function returns the replacement of `current`, or nullopt if `current` stays. A certificate
// that does not parse or does not match the others is replaced. INTERNAL: no certificate can be
// made.
Result<std::optional<Authorities>> NextAuthorities(const Authorities& current, WallTime time,
                                                   const AuthorityOptions& options);
// `names`: DNS names and addresses under which kube-scheduler calls the extender.
Result<std::optional<net::CertificatePair>> NextServing(const net::CertificatePair& current,
                                                        const Authorities& authorities,
                                                        const std::vector<std::string>& names,
                                                        WallTime time,
                                                        const AuthorityOptions& options);
Result<std::optional<net::CertificatePair>> NextClient(const net::CertificatePair& current,
                                                       const Authorities& authorities,
                                                       WallTime time,
                                                       const AuthorityOptions& options);

}  // namespace tessera::certificates
