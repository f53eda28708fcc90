// SPDX-License-Identifier: Apache-2.0
// Creates and checks X.509 certificates for servers to which no other component gives a
// certificate, such as a webhook. All values are PEM text; keys are EC P-256. Does not read or
// write files, and does not decide when to renew.
//
// Threads: any; pure except for OpenSSL's random numbers. Errors: INVALID_ARGUMENT explains why a
// text is invalid; INTERNAL contains OpenSSL's message.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera::net {

// Both times are inclusive.
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

// The purposes for which a certificate is valid.
enum class CertificateUse { kServerOrClient, kClient };

// Signs certificates. The key exists only in this object, unless the caller stores pair().
class CertificateAuthority {
 public:
  // Appends a serial number to the name, so that no two authorities have the same subject.
  static Result<CertificateAuthority> Make(std::string_view common_name, Validity validity);
  // Restores an authority from pair(). INVALID_ARGUMENT: unreadable, or the key does not match.
  static Result<CertificateAuthority> Load(const CertificatePair& pair);
  ~CertificateAuthority();
  CertificateAuthority(CertificateAuthority&& other) noexcept;
  CertificateAuthority& operator=(CertificateAuthority&& other) noexcept;

  const std::string& certificate() const { return certificate_; }
  CertificatePair pair() const;
  // `names` are distinct DNS names and IP addresses.
  Result<CertificatePair> Issue(const std::string& common_name,
                                const std::vector<std::string>& names, Validity validity,
                                CertificateUse use = CertificateUse::kServerOrClient) const;

 private:
  struct Impl;
  explicit CertificateAuthority(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  std::string certificate_;
};

// Splits `pem` into certificates and re-encodes each. Stops at the first invalid certificate.
std::vector<std::string> SplitCertificates(std::string_view pem);
// The validity of the first certificate.
Result<Validity> ValidityOf(std::string_view certificate);

// Whether a client that trusts `authorities` accepts `pair` from a server under each of `names`:
// the key matches the certificate, one of the authorities signed the certificate, and the
// certificate contains all names. Ignores validity times. INVALID_ARGUMENT names the failed
// condition.
Status CheckServerPair(const CertificatePair& pair, std::string_view authorities,
                       const std::vector<std::string>& names);

}  // namespace tessera::net
