// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/authority_plan.h"

#include <gtest/gtest.h>

namespace tessera::certificates {
namespace {

using std::chrono::hours;
constexpr Duration kDay = hours(24);
constexpr WallTime kNow{std::chrono::seconds(1'800'000'000)};
const std::vector<std::string> kNames = {"tessera-scheduler.ns.svc", "10.0.0.7"};

Authorities MakeAuthorities(WallTime time = kNow) {
  return NextAuthorities({}, time, {}).value().value();
}
WallTime EndOf(const net::CertificatePair& pair) { return net::ValidityOf(pair.certificate)->to; }

TEST(AuthorityPlanTest, OneAuthoritySignsServingAndClientCertificates) {
  const Authorities made = MakeAuthorities();
  EXPECT_TRUE(made.older.empty());
  EXPECT_FALSE(NextAuthorities(made, kNow, {}).value().has_value());
  const auto serving = NextServing({}, made, kNames, kNow, {}).value().value();
  EXPECT_TRUE(net::CheckServerPair(serving, made.bundle(), kNames).ok());
  const auto client = NextClient({}, made, kNow, {}).value().value();
  EXPECT_TRUE(net::CheckServerPair(client, made.bundle(), {}).ok());
  EXPECT_EQ(EndOf(serving), kNow + kDay * 90);
  EXPECT_EQ(EndOf(client), kNow + kDay * 365);
  // Peers whose clocks are a day behind accept both.
  EXPECT_EQ(net::ValidityOf(client.certificate)->from, kNow - kDay);
  EXPECT_FALSE(NextServing(serving, made, kNames, kNow, {}).value().has_value());
  EXPECT_FALSE(NextClient(client, made, kNow, {}).value().has_value());
}

TEST(AuthorityPlanTest, CertificatesAreReplacedWhenAThirdOfTheirLifetimeIsLeft) {
  const Authorities made = MakeAuthorities();
  const auto serving = NextServing({}, made, kNames, kNow, {}).value().value();
  EXPECT_FALSE(NextServing(serving, made, kNames, kNow + kDay * 59, {}).value().has_value());
  EXPECT_TRUE(NextServing(serving, made, kNames, kNow + kDay * 60, {}).value().has_value());
  const auto client = NextClient({}, made, kNow, {}).value().value();
  EXPECT_FALSE(NextClient(client, made, kNow + kDay * 243, {}).value().has_value());
  EXPECT_TRUE(NextClient(client, made, kNow + kDay * 244, {}).value().has_value());
}

TEST(AuthorityPlanTest, AuthorityIsReplacedWhenAThirdOfItsLifetimeIsLeft) {
  const Authorities made = MakeAuthorities();
  const WallTime end = EndOf(made.newest), due = end - AuthorityOptions().authority_lifetime / 3;
  EXPECT_FALSE(NextAuthorities(made, due - hours(1), {}).value().has_value());
  const auto next = NextAuthorities(made, due, {}).value();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->older, made.newest);
  EXPECT_FALSE(NextAuthorities(made, end - hours(1), {}).value()->older.empty());
  EXPECT_TRUE(NextAuthorities(made, end, {}).value()->older.empty()) << "it no longer signs";
}

TEST(AuthorityPlanTest, CertificateIsValidFromADayBeforeItsCreation) {
  const WallTime later = kNow + kDay * 10;
  const auto client = NextClient({}, MakeAuthorities(), later, {}).value().value();
  EXPECT_EQ(net::ValidityOf(client.certificate)->from, later - kDay);
}

TEST(AuthorityPlanTest, NewAddressOfTheServiceReplacesTheCertificate) {
  const Authorities made = MakeAuthorities();
  const auto serving = NextServing({}, made, kNames, kNow, {}).value().value();
  const auto next = NextServing(serving, made, {"tessera-scheduler.ns.svc", "10.0.0.8"}, kNow, {});
  ASSERT_TRUE(next.value().has_value());
  EXPECT_TRUE(net::CheckServerPair(**next, made.bundle(), {"10.0.0.8"}).ok());
}

// A kube-scheduler that never restarts trusts the bundle of the first day as long as an authority
// in it can sign.
TEST(AuthorityPlanTest, ReaderOfTheFirstBundleTrustsServingCertificatesForNineYears) {
  Authorities authorities = MakeAuthorities();
  net::CertificatePair serving, client;
  const std::string first = authorities.newest.certificate;
  for (WallTime time = kNow; time < kNow + kDay * 3650; time += kDay * 29) {
    if (auto next = NextAuthorities(authorities, time, {}).value()) authorities = *next;
    if (auto next = NextServing(serving, authorities, kNames, time, {}).value()) serving = *next;
    if (auto next = NextClient(client, authorities, time, {}).value()) client = *next;
    // The server trusts every unexpired certificate that kube-scheduler ever got.
    ASSERT_TRUE(net::CheckServerPair(client, authorities.bundle(), {}).ok());
    ASSERT_GT(EndOf(serving), time);
    if (time < kNow + kDay * (3650 - 90)) {
      ASSERT_TRUE(net::CheckServerPair(serving, first, kNames).ok());
    }
  }
  EXPECT_FALSE(authorities.older.empty());
  // The older authority is dropped when it expires; the newer one signs before that.
  const WallTime later = kNow + kDay * 3651;
  authorities = NextAuthorities(authorities, later, {}).value().value();
  EXPECT_TRUE(authorities.older.empty());
  EXPECT_TRUE(net::CheckServerPair(serving, authorities.bundle(), kNames).ok());
}

TEST(AuthorityPlanTest, UnreadableAuthorityIsReplaced) {
  const Authorities made = MakeAuthorities();
  Authorities broken = made;
  broken.newest.key = MakeAuthorities().newest.key;
  const auto next = NextAuthorities(broken, kNow, {}).value();
  ASSERT_TRUE(next.has_value());
  EXPECT_NE(next->newest.certificate, made.newest.certificate);
  // Certificates of the lost authority are replaced with it.
  const auto client = NextClient({}, made, kNow, {}).value().value();
  EXPECT_TRUE(NextClient(client, *next, kNow, {}).value().has_value());
}

}  // namespace
}  // namespace tessera::certificates
