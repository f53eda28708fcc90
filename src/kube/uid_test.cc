// SPDX-License-Identifier: Apache-2.0
#include "src/kube/uid.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::kube {
namespace {

constexpr std::string_view kUuid = "01234567-89ab-cdef-0011-2233445566ff";

TEST(UidTest, AUuidIsItsBits) {
  EXPECT_EQ(Uid::Of(kUuid), (Uid{0x0123456789abcdef, 0x00112233445566ff}));
}

TEST(UidTest, AnyOtherTextIsAHash) {
  const Uid of_hash = Uid::Of("uid-a");
  EXPECT_EQ(of_hash, Uid::Of("uid-a"));
  EXPECT_NE(of_hash, Uid::Of("uid-b"));
  EXPECT_NE(of_hash, Uid::Of(""));
  // Each of these would be the UUID if the place of the difference did not count.
  for (size_t i = 0; i < kUuid.size(); ++i) {
    for (const char c : {'g', 'A', '-', '/', ':', '`', '1'}) {
      std::string other(kUuid);
      if (other[i] == c) continue;
      other[i] = c;
      EXPECT_NE(Uid::Of(other), Uid::Of(kUuid)) << other;
    }
  }
  EXPECT_NE(Uid::Of("0123456789abcdef00112233445566ff"), Uid::Of(kUuid));
}

}  // namespace
}  // namespace tessera::kube
