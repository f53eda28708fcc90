// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/certificate_plan.h"

#include <gtest/gtest.h>

#include "src/base/random.h"

namespace tessera::certificates {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

const WallTime kStart{std::chrono::seconds(1'700'000'000)};

class CertificatePlanTest : public ::testing::Test {
 protected:
  // Takes the due step and returns its text; "" if none was due.
  std::string Step(bool bundle_is_published = true) {
    const auto step = NextStep(set_, now_, bundle_is_published, options_);
    EXPECT_TRUE(step.ok()) << step.status().ToString();
    if (!step.ok() || !*step) return "";
    set_ = (*step)->set;
    return (*step)->description;
  }
  size_t Authorities() const { return net::SplitCertificates(set_.bundle).size(); }
  bool ServesTrustedPair() const {
    return net::CheckServerPair(set_.serving, set_.bundle, options_.names).ok() &&
           net::ValidityOf(set_.serving.certificate)->to > now_;
  }

  CertificateOptions options_{.names = ServiceNames("svc", "ns", {"10.0.0.9"})};
  CertificateSet set_;
  WallTime now_ = kStart;
};

TEST_F(CertificatePlanTest, CertificateHasTheDnsNamesAndAddressOfTheService) {
  EXPECT_EQ(options_.names, (std::vector<std::string>{"svc.ns.svc", "svc.ns.svc.cluster.local",
                                                      "svc.ns", "svc", "10.0.0.9"}));
}

TEST_F(CertificatePlanTest, NewSetIsServedAtOnce) {
  EXPECT_EQ(Step(false), "made a certificate");
  EXPECT_TRUE(ServesTrustedPair());
  EXPECT_EQ(Authorities(), 1u);
  EXPECT_TRUE(set_.next.empty());
  EXPECT_EQ(Step(), "");
  const auto validity = net::ValidityOf(set_.serving.certificate).value();
  EXPECT_EQ(validity.from, kStart - options_.skew);
}

TEST_F(CertificatePlanTest, OldCertificateStaysTrustedAfterARotation) {
  Step();
  const auto first = set_.serving;
  now_ += hours(24 * 61);
  EXPECT_EQ(Step(), "prepared the next certificate");
  EXPECT_EQ(set_.serving, first);
  EXPECT_EQ(Authorities(), 2u);
  EXPECT_EQ(Step(), "");
  now_ += minutes(61);
  EXPECT_EQ(Step(false), "") << "API servers do not have the bundle yet";
  EXPECT_EQ(Step(true), "promoted the next certificate");
  EXPECT_TRUE(ServesTrustedPair());
  EXPECT_EQ(Authorities(), 2u) << "another replica still serves the old certificate";
  EXPECT_TRUE(net::CheckServerPair(first, set_.bundle, options_.names).ok());
}

TEST_F(CertificatePlanTest, TheNextCertificateIsPreparedWithAThirdLeftAndPromotedLater) {
  Step();
  now_ = kStart + hours(24 * 60) - minutes(1);
  EXPECT_EQ(Step(), "");
  now_ += minutes(1);
  EXPECT_EQ(Step(), "prepared the next certificate");
  now_ += minutes(59);
  EXPECT_EQ(Step(), "");
  now_ += minutes(1);
  EXPECT_EQ(Step(), "promoted the next certificate");
}

TEST_F(CertificatePlanTest, AuthorityStaysForADayAfterItExpires) {
  Step();
  const CertificateSet first = set_;
  const auto known_after = [&](hours days) {
    set_ = first;
    now_ = kStart + days;
    EXPECT_EQ(Step(), "made a certificate") << "a certificate is not valid at its end";
    return Authorities();
  };
  EXPECT_EQ(known_after(hours(24 * 90)), 2u);
  EXPECT_EQ(known_after(hours(24 * 91)), 2u) << "by a clock that is a day behind it has not ended";
  EXPECT_EQ(known_after(hours(24 * 91 + 1)), 1u);
}

TEST_F(CertificatePlanTest, ExpiredAuthoritiesAreRemoved) {
  for (int step = 0; step < 60; ++step, now_ += hours(24 * 10)) {
    Step();
    ASSERT_TRUE(ServesTrustedPair());
    ASSERT_LE(Authorities(), 4u);
  }
}

TEST_F(CertificatePlanTest, UnusablePairIsReplaced) {
  Step();
  const CertificateSet good = set_;
  const auto replaced = [&](const CertificateSet& damaged) {
    set_ = damaged;
    return Step() == "made a certificate" && ServesTrustedPair();
  };
  EXPECT_TRUE(replaced({good.bundle, {good.serving.certificate, "rubbish"}, {}}));
  EXPECT_TRUE(replaced({"rubbish", good.serving, {}}));
  EXPECT_TRUE(replaced({good.bundle, {}, {"rubbish", "rubbish"}}));
  options_.names.push_back("another.name");
  EXPECT_TRUE(replaced(good));
  now_ += hours(24 * 400);
  EXPECT_TRUE(replaced(set_));
  EXPECT_EQ(Authorities(), 1u);
}

TEST_F(CertificatePlanTest, PreparedPairIsPromotedIfTheOldOneIsUnusable) {
  Step();
  now_ += hours(24 * 61);
  Step();
  const auto next = set_.next;
  set_.serving = {};
  EXPECT_EQ(Step(false), "promoted the next certificate at once");
  EXPECT_EQ(set_.serving, next);
}

TEST_F(CertificatePlanTest, AReplicaWhoseClockIsBehindTakesNoStep) {
  Step();
  now_ -= hours(24 * 30);
  EXPECT_EQ(Step(), "");
}

// Replicas with clocks hours apart share a set and see each other's writes late. API servers may
// have an older bundle than the Secret. Every served certificate must be trusted at every moment.
TEST_F(CertificatePlanTest, ServedCertificatesAreAlwaysTrusted) {
  options_ = {.names = {"svc"}, .lifetime = hours(240), .overlap = hours(12), .skew = hours(12)};
  struct Replica {
    Duration clock_offset;
    net::CertificatePair served;
    std::string published_bundle;
  };
  Random random(3);
  std::vector<Replica> replicas;
  for (int i = 0; i < 3; ++i) replicas.push_back({minutes(random.Below(600)) - hours(5), {}, ""});
  std::string at_api_servers;
  int rotations = 0;
  for (int round = 0; round < 300; ++round, now_ += minutes(random.Below(480))) {
    Replica& replica = replicas[random.Below(3)];
    const auto step = NextStep(set_, now_ + replica.clock_offset,
                               replica.published_bundle == set_.bundle, options_);
    ASSERT_TRUE(step.ok());
    if (*step) set_ = (*step)->set;
    if (*step && (*step)->description == "promoted the next certificate") ++rotations;
    replica.served = set_.serving;
    if (random.Below(5) > 0) at_api_servers = replica.published_bundle = set_.bundle;
    if (at_api_servers.empty()) continue;
    for (const Replica& other : replicas) {
      if (other.served.empty()) continue;
      const auto validity = net::ValidityOf(other.served.certificate).value();
      ASSERT_TRUE(validity.from <= now_ && now_ <= validity.to) << round;
      ASSERT_TRUE(net::CheckServerPair(other.served, at_api_servers, {"svc"}).ok()) << round;
    }
  }
  EXPECT_GT(rotations, 3);
}

}  // namespace
}  // namespace tessera::certificates
