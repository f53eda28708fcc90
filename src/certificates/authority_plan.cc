// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/authority_plan.h"

#include <algorithm>

namespace tessera::certificates {
namespace {

using net::CertificateAuthority;
using net::CertificatePair;
using net::Validity;

// The time until which the authority can sign; nullopt if it cannot.
std::optional<WallTime> EndOf(const CertificatePair& authority, WallTime time) {
  if (!CertificateAuthority::Load(authority).ok()) return std::nullopt;
  const auto validity = net::ValidityOf(authority.certificate);
  if (!validity.ok() || validity->to <= time) return std::nullopt;
  return validity->to;
}

// Whether `pair` is valid for `names` and not due for replacement.
bool IsFresh(const CertificatePair& pair, const Authorities& authorities,
             const std::vector<std::string>& names, Duration lifetime, WallTime time) {
  if (!net::CheckServerPair(pair, authorities.bundle(), names).ok()) return false;
  const auto validity = net::ValidityOf(pair.certificate);
  return validity.ok() && time < validity->to - lifetime / 3;
}

Result<CertificatePair> Issue(const CertificatePair& signer, const std::string& common_name,
                              const std::vector<std::string>& names, Duration lifetime,
                              WallTime time, const AuthorityOptions& options,
                              net::CertificateUse use) {
  ASSIGN_OR_RETURN(const auto authority, CertificateAuthority::Load(signer));
  ASSIGN_OR_RETURN(const Validity signer_validity, net::ValidityOf(signer.certificate));
  const Validity validity{std::max(time - options.skew, signer_validity.from),
                          std::min(time + lifetime, signer_validity.to)};
  return authority.Issue(common_name, names, validity, use);
}

}  // namespace

Result<std::optional<Authorities>> NextAuthorities(const Authorities& current, WallTime time,
                                                   const AuthorityOptions& options) {
  Authorities next = current;
  if (!EndOf(current.older, time)) next.older = {};
  const auto ends = EndOf(current.newest, time);
  if (!ends || time >= *ends - options.authority_lifetime / 3) {
    if (ends) next.older = current.newest;
    ASSIGN_OR_RETURN(
        const auto made,
        CertificateAuthority::Make("Tessera extender authority",
                                   {time - options.skew, time + options.authority_lifetime}));
    next.newest = made.pair();
  }
  if (next == current) return {std::nullopt};
  return {next};
}

Result<std::optional<CertificatePair>> NextServing(const CertificatePair& current,
                                                   const Authorities& authorities,
                                                   const std::vector<std::string>& names,
                                                   WallTime time, const AuthorityOptions& options) {
  if (IsFresh(current, authorities, names, options.serving_lifetime, time)) return {std::nullopt};
  const auto ends = EndOf(authorities.older, time);
  const bool older_signs = ends && *ends >= time + options.serving_lifetime;
  // A common name has at most 64 characters; clients read the subject alternative names.
  ASSIGN_OR_RETURN(
      CertificatePair pair,
      Issue(older_signs ? authorities.older : authorities.newest,
            names.empty() ? "tessera" : names.front().substr(0, 64), names,
            options.serving_lifetime, time, options, net::CertificateUse::kServerOrClient));
  return {std::move(pair)};
}

Result<std::optional<CertificatePair>> NextClient(const CertificatePair& current,
                                                  const Authorities& authorities, WallTime time,
                                                  const AuthorityOptions& options) {
  if (IsFresh(current, authorities, {}, options.client_lifetime, time)) return {std::nullopt};
  ASSIGN_OR_RETURN(CertificatePair pair,
                   Issue(authorities.newest, "kube-scheduler", {}, options.client_lifetime, time,
                         options, net::CertificateUse::kClient));
  return {std::move(pair)};
}

}  // namespace tessera::certificates
