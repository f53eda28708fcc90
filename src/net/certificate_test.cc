// SPDX-License-Identifier: Apache-2.0
#include "src/net/certificate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "src/base/file.h"

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

// A key that OpenSSL has encrypted with the pass phrase "secret".
std::string EncryptedKey() {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const std::unique_ptr<BIO, int (*)(BIO*)> out(BIO_new(BIO_s_mem()), &BIO_free);
  const std::string pass_phrase = "secret";
  EXPECT_EQ(PEM_write_bio_PrivateKey(out.get(), key.get(), EVP_aes_128_cbc(),
                                     reinterpret_cast<const unsigned char*>(pass_phrase.data()),
                                     static_cast<int>(pass_phrase.size()), nullptr, nullptr),
            1);
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

TEST(CertificateTest, AnEncryptedKeyIsRejectedWithoutAPromptForItsPassPhrase) {
  // Without a terminal, OpenSSL would read the pass phrase from standard input.
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  ASSERT_TRUE(WriteFd(write_end.get(), "secret\n").ok());
  write_end.Reset();
  const Fd before(::dup(STDIN_FILENO));
  ASSERT_GE(::dup2(read_end.get(), STDIN_FILENO), 0);
  const auto loaded = CertificateAuthority::Load({Authority().certificate(), EncryptedKey()});
  ASSERT_GE(::dup2(before.get(), STDIN_FILENO), 0);
  EXPECT_EQ(loaded.status().message(), "the authority has no PEM private key");
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
