// SPDX-License-Identifier: Apache-2.0
#include "src/net/certificate.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>
#include <ctime>
#include <utility>

#include "src/base/strings.h"
#include "src/net/openssl.h"

namespace tessera::net {
namespace {

constexpr size_t kSerialBytes = 16;

Status OpenSslError(std::string_view step) {
  return Error(Code::kInternal, "{}: {}", step, OpenSslErrorText());
}

template <typename Writer>
std::string ToPem(Writer write) {
  const BioPtr bio(BIO_new(BIO_s_mem()), &BIO_free);
  TESSERA_CHECK(bio && write(bio.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string PemOf(X509* certificate) {
  return ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

std::string PemOf(EVP_PKEY* key) {
  return ToPem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

bool IsIpAddress(const std::string& name) {
  ASN1_OCTET_STRING* address = a2i_IPADDRESS(name.c_str());
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  return address != nullptr;
}

// Builds one certificate; `status` keeps the first failure.
class CertificateBuilder {
 public:
  CertificateBuilder(EVP_PKEY* key, Validity validity) : certificate_(X509_new(), &X509_free) {
    std::array<unsigned char, kSerialBytes> serial{};
    Expect(RAND_bytes(serial.data(), kSerialBytes) == 1, "random numbers");
    serial[0] &= 0x7f;  // a serial number is positive and has at most 20 bytes (RFC 5280, 4.1.2.2)
    serial_ = HexEncode({reinterpret_cast<const char*>(serial.data()), serial.size()});
    BIGNUM* number = BN_bin2bn(serial.data(), kSerialBytes, nullptr);
    BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate_.get()));
    BN_free(number);
    X509_set_version(certificate_.get(), X509_VERSION_3);
    SetTime(X509_getm_notBefore(certificate_.get()), validity.from);
    SetTime(X509_getm_notAfter(certificate_.get()), validity.to);
    Expect(X509_set_pubkey(certificate_.get(), key) == 1, "public key");
  }

  const std::string& serial() const { return serial_; }
  X509* get() const { return certificate_.get(); }

  void SetSubject(const std::string& common_name) {
    const auto* text = reinterpret_cast<const unsigned char*>(common_name.c_str());
    Expect(X509_NAME_add_entry_by_txt(X509_get_subject_name(get()), "CN", MBSTRING_UTF8, text, -1,
                                      -1, 0) == 1,
           "common name");
  }

  void AddExtension(X509* issuer, int nid, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, get(), nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
    Expect(extension != nullptr && X509_add_ext(get(), extension, -1) == 1, value);
    X509_EXTENSION_free(extension);
  }

  Result<X509Ptr> Sign(X509* issuer, EVP_PKEY* key) && {
    X509_set_issuer_name(get(), X509_get_subject_name(issuer));
    Expect(X509_sign(get(), key, EVP_sha256()) > 0, "signature");
    if (!status_.ok()) return status_.Annotate("making a certificate");
    return std::move(certificate_);
  }

 private:
  void Expect(bool ok, std::string_view step) {
    if (!ok && status_.ok()) status_ = OpenSslError(step);
  }
  void SetTime(ASN1_TIME* at, WallTime time) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(time.time_since_epoch());
    Expect(ASN1_TIME_set(at, static_cast<time_t>(seconds.count())) != nullptr, "time");
  }

  X509Ptr certificate_;
  std::string serial_;
  Status status_;
};

bool IsValidForName(X509* certificate, const std::string& name) {
  if (IsIpAddress(name)) return X509_check_ip_asc(certificate, name.c_str(), 0) == 1;
  // The subject does not count, because Go, and so the API server, ignores it (crypto/x509).
  return X509_check_host(certificate, name.data(), name.size(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT,
                         nullptr) == 1;
}

bool SignedByOneOf(X509* certificate, std::string_view authorities) {
  const BioPtr pem = OpenText(authorities);
  while (const X509Ptr authority = NextCertificate(pem.get())) {
    if (X509_check_issued(authority.get(), certificate) == X509_V_OK &&
        X509_verify(certificate, X509_get0_pubkey(authority.get())) == 1) {
      return true;
    }
  }
  return false;
}

}  // namespace

struct CertificateAuthority::Impl {
  KeyPtr key;
  X509Ptr certificate;
};

CertificateAuthority::CertificateAuthority(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)), certificate_(PemOf(impl_->certificate.get())) {}
CertificateAuthority::~CertificateAuthority() = default;
CertificateAuthority::CertificateAuthority(CertificateAuthority&&) noexcept = default;
CertificateAuthority& CertificateAuthority::operator=(CertificateAuthority&&) noexcept = default;

Result<CertificateAuthority> CertificateAuthority::Make(std::string_view common_name,
                                                        Validity validity) {
  KeyPtr key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  if (!key) return OpenSslError("making a key");
  CertificateBuilder builder(key.get(), validity);
  // Each authority has a subject of its own: verifiers look up an issuer by its subject, and for a
  // while a bundle has an old and a new authority.
  builder.SetSubject(fmt::format("{} {}", common_name, builder.serial().substr(0, 16)));
  builder.AddExtension(builder.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  builder.AddExtension(builder.get(), NID_key_usage, "critical,keyCertSign");
  builder.AddExtension(builder.get(), NID_subject_key_identifier, "hash");
  X509* self = builder.get();
  ASSIGN_OR_RETURN(X509Ptr certificate, std::move(builder).Sign(self, key.get()));
  return CertificateAuthority(std::make_unique<Impl>(Impl{std::move(key), std::move(certificate)}));
}

Result<CertificateAuthority> CertificateAuthority::Load(const CertificatePair& pair) {
  X509Ptr certificate = NextCertificate(OpenText(pair.certificate).get());
  KeyPtr key = ReadPrivateKey(pair.key);
  const bool match =
      certificate && key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!certificate) return Error(Code::kInvalidArgument, "the authority has no PEM certificate");
  if (!key) return Error(Code::kInvalidArgument, "the authority has no PEM private key");
  if (!match) {
    return Error(Code::kInvalidArgument,
                 "the private key does not match the authority's certificate");
  }
  return CertificateAuthority(std::make_unique<Impl>(Impl{std::move(key), std::move(certificate)}));
}

CertificatePair CertificateAuthority::pair() const {
  return {certificate_, PemOf(impl_->key.get())};
}

Result<CertificatePair> CertificateAuthority::Issue(const std::string& common_name,
                                                    const std::vector<std::string>& names,
                                                    Validity validity, CertificateUse use) const {
  std::string alternatives;
  for (const std::string& name : names) {
    RETURN_IF_ERROR(CheckCertificateName(name));
    if (!alternatives.empty()) alternatives.append(",");
    alternatives.append(IsIpAddress(name) ? "IP:" : "DNS:").append(name);
  }
  const KeyPtr key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  if (!key) return OpenSslError("making a key");
  X509* issuer = impl_->certificate.get();
  CertificateBuilder builder(key.get(), validity);
  builder.SetSubject(common_name);
  builder.AddExtension(issuer, NID_basic_constraints, "critical,CA:FALSE");
  builder.AddExtension(issuer, NID_key_usage, "critical,digitalSignature");
  builder.AddExtension(issuer, NID_ext_key_usage,
                       use == CertificateUse::kClient ? "clientAuth" : "serverAuth,clientAuth");
  builder.AddExtension(issuer, NID_authority_key_identifier, "keyid");
  if (!names.empty()) builder.AddExtension(issuer, NID_subject_alt_name, alternatives);
  ASSIGN_OR_RETURN(const X509Ptr certificate, std::move(builder).Sign(issuer, impl_->key.get()));
  return CertificatePair{PemOf(certificate.get()), PemOf(key.get())};
}

Status CheckCertificateName(const std::string& name) {
  if (IsIpAddress(name)) return Status::Ok();
  std::string_view rest = name;
  if (rest.starts_with("*.")) rest.remove_prefix(2);
  if (IsDnsName(ToLower(rest))) return Status::Ok();
  return Error(Code::kInvalidArgument, "\"{}\" is neither a DNS name nor an IP address", name);
}

std::vector<std::string> SplitCertificates(std::string_view pem) {
  std::vector<std::string> certificates;
  const BioPtr bio = OpenText(pem);
  while (const X509Ptr next = NextCertificate(bio.get())) certificates.push_back(PemOf(next.get()));
  ERR_clear_error();  // OpenSSL reports the end of the text as an error.
  return certificates;
}

Result<Validity> ValidityOf(std::string_view certificate) {
  const X509Ptr first = NextCertificate(OpenText(certificate).get());
  if (!first) return Error(Code::kInvalidArgument, "no PEM certificate: {}", OpenSslErrorText());
  Validity validity;
  ASSIGN_OR_RETURN(validity.from, TimeOf(X509_get0_notBefore(first.get())));
  ASSIGN_OR_RETURN(validity.to, TimeOf(X509_get0_notAfter(first.get())));
  return validity;
}

Status CheckServerPair(const CertificatePair& pair, std::string_view authorities,
                       const std::vector<std::string>& names) {
  const X509Ptr certificate = NextCertificate(OpenText(pair.certificate).get());
  const KeyPtr key = ReadPrivateKey(pair.key);
  ERR_clear_error();
  if (!certificate) return Error(Code::kInvalidArgument, "no PEM certificate found");
  if (!key) return Error(Code::kInvalidArgument, "no PEM private key found");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return Error(Code::kInvalidArgument, "the private key does not match the certificate");
  }
  const bool trusted = SignedByOneOf(certificate.get(), authorities);
  ERR_clear_error();
  if (!trusted)
    return Error(Code::kInvalidArgument, "no authority in the bundle signed the certificate");
  for (const std::string& name : names) {
    if (IsValidForName(certificate.get(), name)) continue;
    return Error(Code::kInvalidArgument, "the certificate is not for {}", name);
  }
  return Status::Ok();
}

}  // namespace tessera::net
