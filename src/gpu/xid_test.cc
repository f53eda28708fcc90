// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/xid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(XidCatalogueTest, IsInOrderAndFindsEachEntry) {
  uint64_t last = 0;
  for (const XidInfo& info : XidCatalogue()) {
    EXPECT_GT(info.code, last);
    last = info.code;
    EXPECT_EQ(FindXid(info.code), &info);
    EXPECT_FALSE(info.name.empty());
  }
  EXPECT_EQ(FindXid(4242), nullptr);
}

TEST(XidCatalogueTest, DescribesKnownAndUnknownCodes) {
  EXPECT_EQ(DescribeXid(79), "XID 79: GPU has fallen off the bus");
  EXPECT_EQ(DescribeXid(4242), "XID 4242");
}

TEST(XidPolicyTest, ByDefaultOnlyErrorsOfApplicationsAreIgnored) {
  const XidPolicy policy;
  for (const uint64_t xid : {13, 31, 43, 45, 68, 109}) EXPECT_FALSE(policy.IsCritical(xid)) << xid;
  for (const uint64_t xid : {48, 63, 74, 79, 94, 119, 4242}) {
    EXPECT_TRUE(policy.IsCritical(xid)) << xid;
  }
  EXPECT_TRUE(policy.watches_any());
  EXPECT_TRUE(policy.polls());
}

TEST(XidPolicyTest, CodesAreDisabledAndEnabled) {
  const XidPolicy policy = XidPolicy::Parse("79, 48", "31,48");
  EXPECT_FALSE(policy.IsCritical(79));
  EXPECT_TRUE(policy.IsCritical(31));
  EXPECT_TRUE(policy.IsCritical(48)) << "enabling wins";
  EXPECT_FALSE(policy.IsCritical(13)) << "the default list stays";
}

TEST(XidPolicyTest, DisablingAllTurnsEverythingOff) {
  for (const char* word : {"all", "xids", " all ,79"}) {
    const XidPolicy policy = XidPolicy::Parse(word, "");
    EXPECT_FALSE(policy.IsCritical(79)) << word;
    EXPECT_FALSE(policy.watches_any()) << word;
  }
  EXPECT_FALSE(XidPolicy::Parse("all", "").polls());
  EXPECT_TRUE(XidPolicy::Parse("xids", "").polls());
}

TEST(XidPolicyTest, EnablingOneWhileAllAreDisabledWatchesThatOne) {
  const XidPolicy policy = XidPolicy::Parse("all", "79");
  EXPECT_TRUE(policy.watches_any());
  EXPECT_TRUE(policy.IsCritical(79));
  EXPECT_FALSE(policy.IsCritical(48));
}

TEST(XidPolicyTest, EnablingAllOverridesTheDefaultListToo) {
  const XidPolicy policy = XidPolicy::Parse("all", "all");
  EXPECT_TRUE(policy.IsCritical(13));
  EXPECT_TRUE(policy.polls());
}

TEST(XidPolicyTest, WarnsOfWordsThatAreNoXid) {
  EXPECT_THAT(XidPolicy::Parse("79,,foo", "-1").warnings(),
              ElementsAre("DP_DISABLE_HEALTHCHECKS: \"foo\" is no XID",
                          "DP_ENABLE_HEALTHCHECKS: \"-1\" is no XID"));
  EXPECT_THAT(XidPolicy::Parse("", "").warnings(), IsEmpty());
}

}  // namespace
}  // namespace tessera::gpu
