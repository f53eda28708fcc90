// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/xid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(XidCatalogTest, IsInOrderAndFindsEachEntry) {
  constexpr uint64_t kCodes[] = {
#define TESSERA_XID(code, name, action) code,
#include "api/xids.inc"
#undef TESSERA_XID
  };
  uint64_t last = 0;
  for (const uint64_t code : kCodes) {
    EXPECT_GT(code, last);
    last = code;
    const XidInfo* info = FindXid(code);
    ASSERT_NE(info, nullptr) << code;
    EXPECT_EQ(info->code, code);
    EXPECT_FALSE(info->name.empty());
  }
  EXPECT_EQ(FindXid(4242), nullptr);
}

TEST(XidCatalogTest, DescribesKnownAndUnknownCodes) {
  EXPECT_EQ(DescribeXid(79), "XID 79: GPU has fallen off the bus");
  EXPECT_EQ(DescribeXid(4242), "XID 4242");
}

TEST(XidPolicyTest, ByDefaultTheActionOfTheCatalogDecides) {
  const XidPolicy policy;
  // A tenant can cause these XIDs; the only remedy is to restart the program.
  for (const uint64_t xid : {13, 31, 32, 43, 45, 68, 69, 94}) {
    EXPECT_EQ(policy.EffectOf(xid), XidEffect::kSuspect) << xid;
    EXPECT_FALSE(policy.IsCritical(xid)) << xid;
  }
  for (const uint64_t xid : {48, 74, 79, 95, 109, 119}) {
    EXPECT_EQ(policy.EffectOf(xid), XidEffect::kUntilRepaired) << xid;
    EXPECT_TRUE(policy.IsCritical(xid)) << xid;
  }
  for (const uint64_t xid : {78, 93, 154}) EXPECT_EQ(policy.EffectOf(xid), XidEffect::kNone) << xid;
  EXPECT_EQ(policy.EffectOf(4242), XidEffect::kUntilQuiet);
  EXPECT_TRUE(policy.watches_xids());
  EXPECT_TRUE(policy.checks_health());
}

TEST(XidPolicyTest, CodesAreDisabledAndEnabled) {
  const XidPolicy policy = XidPolicy::Parse("79, 48", "31,48");
  EXPECT_FALSE(policy.IsCritical(79));
  EXPECT_TRUE(policy.IsCritical(31));
  EXPECT_TRUE(policy.IsCritical(48)) << "an enabled code takes precedence";
  EXPECT_FALSE(policy.IsCritical(13)) << "other codes keep the effect of the catalog";
  EXPECT_EQ(policy.EffectOf(79), XidEffect::kNone);
  EXPECT_EQ(policy.EffectOf(31), XidEffect::kUntilQuiet) << "the catalog requires no repair";
  EXPECT_EQ(policy.EffectOf(48), XidEffect::kUntilRepaired);
}

TEST(XidPolicyTest, DisablingAllIgnoresEveryXid) {
  for (const char* word : {"all", "xids", " all ,79"}) {
    const XidPolicy policy = XidPolicy::Parse(word, "");
    EXPECT_EQ(policy.EffectOf(79), XidEffect::kNone) << word;
    EXPECT_EQ(policy.EffectOf(13), XidEffect::kNone) << word;
    EXPECT_FALSE(policy.watches_xids()) << word;
  }
  EXPECT_FALSE(XidPolicy::Parse("all", "").checks_health());
  EXPECT_TRUE(XidPolicy::Parse("xids", "").checks_health());
}

TEST(XidPolicyTest, EnablingOneXidWhileAllAreDisabledWatchesOnlyThatXid) {
  const XidPolicy policy = XidPolicy::Parse("all", "79");
  EXPECT_TRUE(policy.watches_xids());
  EXPECT_TRUE(policy.IsCritical(79));
  EXPECT_FALSE(policy.IsCritical(48));
}

TEST(XidPolicyTest, EnablingAllOverridesTheCatalog) {
  const XidPolicy policy = XidPolicy::Parse("all", "all");
  EXPECT_TRUE(policy.IsCritical(13));
  EXPECT_TRUE(policy.checks_health());
}

TEST(XidPolicyTest, WarnsOfInvalidWords) {
  EXPECT_THAT(XidPolicy::Parse("79,,foo", "-1").warnings(),
              ElementsAre("DP_DISABLE_HEALTHCHECKS: \"foo\" is not an XID",
                          "DP_ENABLE_HEALTHCHECKS: \"-1\" is not an XID"));
  EXPECT_THAT(XidPolicy::Parse("", "").warnings(), IsEmpty());
}

}  // namespace
}  // namespace tessera::gpu
