// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/certificate_plan.h"

#include <algorithm>

namespace tessera::certificates {
namespace {

using net::CertificatePair;
using net::Validity;

// Whether the pair can be served. A pair that is not valid yet can be served: the clock of this
// replica is behind the clock of the replica that created the pair.
bool IsUsable(const CertificatePair& pair, const CertificateSet& set, WallTime time,
              const CertificateOptions& options) {
  if (!net::CheckServerPair(pair, set.bundle, options.names).ok()) return false;
  const auto validity = net::ValidityOf(pair.certificate);
  return validity.ok() && time < validity->to;
}

// The newest authority and the others, without duplicates. An expired authority is left out only
// after `skew`, because peers whose clocks are behind may still need it.
std::string BundleOf(const std::string& newest, const std::string& others, WallTime time,
                     const CertificateOptions& options) {
  std::vector<std::string> authorities = {newest};
  for (const std::string& other : net::SplitCertificates(others)) {
    const auto validity = net::ValidityOf(other);
    if (!validity.ok() || validity->to + options.skew < time) continue;
    if (std::ranges::find(authorities, other) == authorities.end()) authorities.push_back(other);
  }
  std::string bundle;
  for (const std::string& authority : authorities) bundle += authority;
  return bundle;
}

struct NewCertificate {
  CertificatePair pair;
  std::string authority;
};

Result<NewCertificate> MakeCertificate(WallTime time, const CertificateOptions& options) {
  const Validity validity{time - options.skew, time + options.lifetime};
  ASSIGN_OR_RETURN(const auto authority,
                   net::CertificateAuthority::Make("Tessera webhook authority", validity));
  NewCertificate made{.authority = authority.certificate()};
  const std::string name = options.names.empty() ? "tessera" : options.names.front();
  // A common name has at most 64 characters; clients ignore it if there are alternative names.
  ASSIGN_OR_RETURN(made.pair, authority.Issue(name.substr(0, 64), options.names, validity));
  return made;
}

// The creation time of `pair`, by the clock of the replica that made it.
WallTime CreationTime(const CertificatePair& pair, const CertificateOptions& options) {
  return net::ValidityOf(pair.certificate)->from + options.skew;
}

}  // namespace

std::vector<std::string> ServiceNames(const std::string& service, const std::string& ns,
                                      const std::vector<std::string>& more) {
  const std::string full = fmt::format("{}.{}.svc", service, ns);
  std::vector<std::string> names = {full, full + ".cluster.local",
                                    fmt::format("{}.{}", service, ns), service};
  for (const std::string& name : more) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

Result<net::TlsOptions> PlaceholderTls(WallTime now) {
  const Validity validity{now, now + std::chrono::hours(1)};
  ASSIGN_OR_RETURN(const auto authority,
                   net::CertificateAuthority::Make("Tessera placeholder", validity));
  ASSIGN_OR_RETURN(const auto pair, authority.Issue("placeholder", {}, validity));
  return net::TlsOptions{.ca = {.text = authority.certificate()},
                         .certificate = {.text = pair.certificate},
                         .key = {.text = pair.key}};
}

Result<std::optional<CertificateStep>> NextStep(const CertificateSet& current, WallTime time,
                                                bool bundle_is_published,
                                                const CertificateOptions& options) {
  const bool serving_is_usable = IsUsable(current.serving, current, time, options);
  const bool next_is_usable =
      !current.next.empty() && IsUsable(current.next, current, time, options);
  const auto promote = [&](std::string description) {
    const std::string newest = net::SplitCertificates(current.bundle).front();
    return CertificateStep{{BundleOf(newest, current.bundle, time, options), current.next, {}},
                           std::move(description)};
  };
  if (!serving_is_usable && next_is_usable)
    return {promote("promoted the next certificate at once")};
  if (!serving_is_usable) {
    ASSIGN_OR_RETURN(NewCertificate made, MakeCertificate(time, options));
    return {
        CertificateStep{{BundleOf(made.authority, current.bundle, time, options), made.pair, {}},
                        "made a certificate"}};
  }
  if (next_is_usable) {
    if (!bundle_is_published || time < CreationTime(current.next, options) + options.overlap)
      return {std::nullopt};
    return {promote("promoted the next certificate")};
  }
  const WallTime ends = net::ValidityOf(current.serving.certificate)->to;
  if (time < ends - options.lifetime / 3) return {std::nullopt};
  ASSIGN_OR_RETURN(NewCertificate made, MakeCertificate(time, options));
  return {CertificateStep{
      {BundleOf(made.authority, current.bundle, time, options), current.serving, made.pair},
      "prepared the next certificate"}};
}

}  // namespace tessera::certificates
