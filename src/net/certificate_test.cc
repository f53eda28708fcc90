// SPDX-License-Identifier: Apache-2.0
#include "src/net/certificate.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

namespace tessera::net {
namespace {

using std::chrono::hours;

constexpr WallTime kNow{std::chrono::seconds(1'700'000'000)};
const Validity kDay{kNow - hours(1), kNow + hours(23)};

CertificateAuthority Authority() { return CertificateAuthority::Make("test", kDay).value(); }

TEST(CertificateTest, APairIsValidForClientsOfItsAuthority) {
  const CertificateAuthority authority = Authority();
  const CertificateAuthority other = Authority();
  const std::vector<std::string> names = {"a.b.svc", "10.0.0.1", "::1"};
  const auto pair = authority.Issue("server", names, kDay);
  ASSERT_TRUE(pair.ok()) << pair.status().ToString();
  EXPECT_TRUE(CheckServerPair(*pair, authority.certificate(), names).ok());
  EXPECT_TRUE(CheckServerPair(*pair, other.certificate() + authority.certificate(), names).ok());
  EXPECT_EQ(CheckServerPair(*pair, other.certificate(), names).code(), Code::kInvalidArgument);
  EXPECT_EQ(CheckServerPair(*pair, "", names).code(), Code::kInvalidArgument);
}

TEST(CertificateTest, APairIsValidForItsNamesOnly) {
  const CertificateAuthority authority = Authority();
  const auto pair = authority.Issue("server", {"a.b.svc", "10.0.0.1"}, kDay).value();
  for (const char* name : {"b.svc", "c.a.b.svc", "10.0.0.2", "server"}) {
    const Status status = CheckServerPair(pair, authority.certificate(), {name});
    EXPECT_NE(status.message().find(name), std::string::npos) << name;
  }
}

TEST(CertificateTest, AMismatchedKeyIsDetected) {
  const CertificateAuthority authority = Authority();
  auto pair = authority.Issue("server", {"a"}, kDay).value();
  pair.key = authority.Issue("server", {"a"}, kDay)->key;
  EXPECT_NE(CheckServerPair(pair, authority.certificate(), {}).message().find("private key"),
            std::string::npos);
}

TEST(CertificateTest, AStoredAuthorityKeepsSigning) {
  const CertificateAuthority made = Authority();
  const auto loaded = CertificateAuthority::Load(made.pair());
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->certificate(), made.certificate());
  const auto pair = loaded->Issue("server", {"a"}, kDay);
  ASSERT_TRUE(pair.ok());
  EXPECT_TRUE(CheckServerPair(*pair, made.certificate(), {"a"}).ok());
  for (const CertificatePair& wrong :
       {CertificatePair{made.certificate(), Authority().pair().key},
        CertificatePair{made.certificate(), ""}, CertificatePair{"", made.pair().key}}) {
    EXPECT_EQ(CertificateAuthority::Load(wrong).status().code(), Code::kInvalidArgument);
  }
}

TEST(CertificateTest, TimesAreReadBackToTheSecond) {
  // UTCTime ends in 2049; later times use the other encoding.
  const Validity far{kDay.from, kNow + hours(24) * 365 * 40};
  const CertificateAuthority authority = CertificateAuthority::Make("test", far).value();
  EXPECT_EQ(ValidityOf(authority.certificate()).value(), far);
  EXPECT_EQ(ValidityOf(authority.Issue("a", {"a"}, kDay)->certificate).value(), kDay);
}

TEST(CertificateTest, AuthoritiesAreDistinct) {
  EXPECT_NE(Authority().certificate(), Authority().certificate());
}

TEST(CertificateTest, BundlesAreSplit) {
  const std::string a = Authority().certificate(), b = Authority().certificate();
  EXPECT_EQ(SplitCertificates(a + "\n# words\n" + b), (std::vector{a, b}));
  EXPECT_TRUE(SplitCertificates("").empty());
  EXPECT_TRUE(SplitCertificates("-----BEGIN CERTIFICATE-----\nrubbish\n").empty());
}

TEST(CertificateTest, InvalidTextIsRejected) {
  for (const char* text :
       {"", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}) {
    EXPECT_EQ(ValidityOf(text).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(CheckServerPair({text, text}, text, {}).code(), Code::kInvalidArgument);
  }
}

TEST(CertificateTest, AmbiguousNamesAreRejected) {
  const CertificateAuthority authority = Authority();
  for (const char* name :
       {"", "a,IP:10.0.0.1", "a\nb", "a b", "a..b", "*", "a.*", "10.0.0.1:443"}) {
    EXPECT_EQ(authority.Issue("a", {name}, kDay).status().code(), Code::kInvalidArgument) << name;
  }
}

// The allowed uses of the certificate, as flags XKU_*.
uint32_t UsesOf(const CertificatePair& pair) {
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(BIO_new_mem_buf(pair.certificate.data(), -1),
                                                &BIO_free);
  const std::unique_ptr<X509, void (*)(X509*)> read(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free);
  return X509_get_extended_key_usage(read.get());
}

TEST(CertificateTest, AClientCertificateIsInvalidForServers) {
  const CertificateAuthority authority = Authority();
  EXPECT_EQ(UsesOf(authority.Issue("client", {}, kDay, CertificateUse::kClient).value()),
            uint32_t{XKU_SSL_CLIENT});
  EXPECT_EQ(UsesOf(authority.Issue("server", {"s"}, kDay).value()),
            uint32_t{XKU_SSL_CLIENT | XKU_SSL_SERVER});
}

}  // namespace
}  // namespace tessera::net
