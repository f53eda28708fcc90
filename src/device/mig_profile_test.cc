// SPDX-License-Identifier: Apache-2.0
#include "src/device/mig_profile.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

TEST(MigProfileTest, KnowsProfilesOfEveryGeneration) {
  for (const char* name :
       {"1g.5gb", "1g.10gb", "7g.80gb", "3g.71gb", "1g.10gb.me", "1g.24gb-me", "1g.24gb.me.all",
        "4g.96gb.gfx", "7g.1536gb", "9g.90gb", "1g.10gb.az", "1g.10gb.aaaaaaaaaaaaaaa"}) {
    EXPECT_TRUE(IsMigProfile(name)) << name;
  }
}

TEST(MigProfileTest, RefusesInvalidInput) {
  for (const char* name :
       {"", "1g", "1g.", "1g.gb", "0g.10gb", "1g.0gb", "g.10gb", "1g.10GB", "1g.10gb.",
        "1g.10gb+me", "1g.10gb.M", "1g.10gbme", "1c.3g.20gb", "1g.99999gb", "10g.10gb",
        "1g.10gb.aaaaaaaaaaaaaaaa", "1g.-5gb", " 1g.5gb"}) {
    EXPECT_FALSE(IsMigProfile(name)) << name;
  }
}

TEST(MigProfileTest, WritesNvmlsPlusAsResourceNamesDo) {
  EXPECT_EQ(*MigProfileFromNvml("1g.10gb+me"), "1g.10gb.me");
  EXPECT_EQ(*MigProfileFromNvml("2g.20gb"), "2g.20gb");
  EXPECT_EQ(MigProfileFromNvml("big").status().message(),
            "\"big\" is not a MIG profile, like 1g.10gb or 1g.10gb+me");
}

}  // namespace
}  // namespace tessera::device
