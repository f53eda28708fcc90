// SPDX-License-Identifier: Apache-2.0
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>

#include "src/net/testing/loopback.h"

namespace tessera::net::testing {
namespace {

using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using CertificatePtr = std::unique_ptr<X509, decltype(&X509_free)>;

template <typename Writer>
std::string ToPem(Writer write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), &BIO_free);
  TESSERA_CHECK(write(bio.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string PemOf(X509* certificate) {
  return ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  TESSERA_CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Valid from an hour ago for a day; not yet signed.
CertificatePtr NewCertificate(EVP_PKEY* key, const std::string& common_name) {
  static std::atomic<int> serial{1};
  CertificatePtr certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86400);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  return certificate;
}

}  // namespace

struct TestCa::Impl {
  KeyPtr key{EVP_EC_gen("P-256"), &EVP_PKEY_free};
  CertificatePtr certificate{nullptr, &X509_free};
};

TestCa::TestCa() : impl_(std::make_unique<Impl>()) {
  impl_->certificate = NewCertificate(impl_->key.get(), "test authority");
  X509* self = impl_->certificate.get();
  X509_set_issuer_name(self, X509_get_subject_name(self));
  AddExtension(self, self, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(self, self, NID_key_usage, "critical,keyCertSign");
  TESSERA_CHECK(X509_sign(self, impl_->key.get(), EVP_sha256()) > 0);
  certificate_ = PemOf(self);
}

TestCa::~TestCa() = default;

TestCa::Pair TestCa::Issue(const std::string& common_name,
                           const std::vector<std::string>& names) const {
  const KeyPtr key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const CertificatePtr certificate = NewCertificate(key.get(), common_name);
  X509* issuer = impl_->certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
  std::string alternatives;
  for (const std::string& name : names) {
    const bool is_ip = name.find_first_not_of("0123456789.:") == std::string::npos;
    if (!alternatives.empty()) alternatives.append(",");
    alternatives.append(is_ip ? "IP:" : "DNS:").append(name);
  }
  if (!names.empty()) AddExtension(certificate.get(), issuer, NID_subject_alt_name, alternatives);
  TESSERA_CHECK(X509_sign(certificate.get(), impl_->key.get(), EVP_sha256()) > 0);
  return {PemOf(certificate.get()), ToPem([&](BIO* bio) {
            return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace tessera::net::testing
