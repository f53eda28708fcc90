// SPDX-License-Identifier: Apache-2.0
// Who signs the certificates of the extender's port, and when each is replaced. Both sides show
// one: tessera-scheduler to kube-scheduler, and kube-scheduler to tessera-scheduler.
//
// kube-scheduler reads the authorities that it trusts at its start, and its own certificate at each
// new connection. So, unlike the webhook's (certificate_plan.h), an authority lasts for years and
// its key is kept:
//
//   serving   lives 90 days. Each replica signs its own and keeps it in memory
//   client    lives a year. The newest authority signs it, a third of its life before its end
//   authority lives ten years. A third of its life before its end a newer one is added. The older
//             one signs what is served as long as it can: kube-scheduler has years to read both
//
// Threads: values and pure functions, but for random numbers. Clocks may differ by `skew`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/net/certificate.h"

namespace tessera::certificates {

struct AuthorityOptions {
  Duration lifetime = std::chrono::hours(24 * 3650);
  Duration serving = std::chrono::hours(24 * 90);
  Duration client = std::chrono::hours(24 * 365);
  Duration skew = std::chrono::hours(24);
};

struct Authorities {
  net::CertificatePair newest;
  net::CertificatePair older;  // empty: there is one authority
  bool operator==(const Authorities&) const = default;

  // To be trusted by both sides.
  std::string bundle() const { return newest.certificate + older.certificate; }
};

// Each returns the replacement of `now`, nothing where `now` stays. A certificate that cannot be
// read or does not match the rest is replaced. INTERNAL where no certificate can be made.
Result<std::optional<Authorities>> NextAuthorities(const Authorities& now, WallTime time,
                                                   const AuthorityOptions& options);
// `names`: DNS names and addresses by which kube-scheduler calls.
Result<std::optional<net::CertificatePair>> NextServing(const net::CertificatePair& now,
                                                        const Authorities& authorities,
                                                        const std::vector<std::string>& names,
                                                        WallTime time,
                                                        const AuthorityOptions& options);
Result<std::optional<net::CertificatePair>> NextClient(const net::CertificatePair& now,
                                                       const Authorities& authorities,
                                                       WallTime time,
                                                       const AuthorityOptions& options);

}  // namespace tessera::certificates
