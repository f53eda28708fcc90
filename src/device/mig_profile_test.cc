// SPDX-License-Identifier: Apache-2.0
#include "src/device/mig_profile.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

TEST(MigProfileTest, AcceptsProfilesOfEveryGeneration) {
  for (const char* name :
       {"1g.5gb", "1g.10gb", "7g.80gb", "3g.71gb", "1g.10gb.me", "1g.24gb-me", "1g.24gb.me.all",
        "4g.96gb.gfx", "7g.1536gb", "9g.90gb", "1g.10gb.az", "1g.10gb.aaaaaaaaaaaaaaa"}) {
    EXPECT_TRUE(IsMigProfile(name)) << name;
  }
}

TEST(MigProfileTest, RejectsInvalidInput) {
  for (const char* name :
       {"", "1g", "1g.", "1g.gb", "0g.10gb", "1g.0gb", "g.10gb", "1g.10GB", "1g.10gb.",
        "1g.10gb+me", "1g.10gb.M", "1g.10gbme", "1c.3g.20gb", "1g.99999gb", "10g.10gb",
        "1g.10gb.aaaaaaaaaaaaaaaa", "1g.-5gb", " 1g.5gb"}) {
    EXPECT_FALSE(IsMigProfile(name)) << name;
  }
}

}  // namespace
}  // namespace tessera::device
