// SPDX-License-Identifier: Apache-2.0
// Makes X.509 certificates, and judges those that it finds: for servers that nobody gives any, such
// as a webhook. Everything is PEM text; keys are EC P-256. Not for files, and not for knowing when
// to make a new one.
//
// Threads: any; pure but for OpenSSL's random numbers. Errors: INVALID_ARGUMENT says what is wrong
// with a text; INTERNAL has OpenSSL's words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera::net {

// Both ends included.
struct Validity {
  WallTime from, to;
  bool operator==(const Validity&) const = default;
};

struct CertificatePair {
  std::string certificate;
  std::string key;
  bool empty() const { return certificate.empty() && key.empty(); }
  bool operator==(const CertificatePair&) const = default;
};

// INVALID_ARGUMENT: neither an IP address nor a DNS name, which may start with "*.".
Status CheckCertificateName(const std::string& name);

// What a certificate may be shown as.
enum class CertificateUse { kServerOrClient, kClient };

// Signs certificates. A caller that never asks for its pair throws the key away with the object.
class CertificateAuthority {
 public:
  // No two authorities have the same subject: a serial number is added to the name.
  static Result<CertificateAuthority> Make(std::string_view common_name, Validity validity);
  // From what pair() gave. INVALID_ARGUMENT: unreadable, or the key is not the certificate's.
  static Result<CertificateAuthority> Load(const CertificatePair& pair);
  ~CertificateAuthority();
  CertificateAuthority(CertificateAuthority&& other) noexcept;
  CertificateAuthority& operator=(CertificateAuthority&& other) noexcept;

  const std::string& certificate() const { return certificate_; }
  CertificatePair pair() const;
  // `names` are DNS names and IP addresses, none of them twice.
  Result<CertificatePair> Issue(const std::string& common_name,
                                const std::vector<std::string>& names, Validity validity,
                                CertificateUse use = CertificateUse::kServerOrClient) const;

 private:
  struct Impl;
  explicit CertificateAuthority(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  std::string certificate_;
};

// The certificates in `pem`, one by one and written anew; what is none of them ends the list.
std::vector<std::string> SplitCertificates(std::string_view pem);
// Of the first certificate.
Result<Validity> ValidityOf(std::string_view certificate);

// Whether a server may show `pair` to somebody who trusts `authorities` and asks for any of
// `names`: the key is the certificate's, one of the authorities signed it, and it has the names.
// Time does not count. INVALID_ARGUMENT says which of these does not hold.
Status CheckServerPair(const CertificatePair& pair, std::string_view authorities,
                       const std::vector<std::string>& names);

}  // namespace tessera::net
