// SPDX-License-Identifier: Apache-2.0
#include "src/kube/uid_digest.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::kube {
namespace {

constexpr std::string_view kUuid = "01234567-89ab-cdef-0011-2233445566ff";

TEST(UidDigestTest, UuidsAreStoredAsTheirBits) {
  EXPECT_EQ(UidDigest::Of(Uid(kUuid)), (UidDigest{0x0123456789abcdef, 0x00112233445566ff}));
}

TEST(UidDigestTest, AnyOtherTextIsAHash) {
  const UidDigest of_hash = UidDigest::Of(Uid("uid-a"));
  EXPECT_EQ(of_hash, UidDigest::Of(Uid("uid-a")));
  EXPECT_NE(of_hash, UidDigest::Of(Uid("uid-b")));
  EXPECT_NE(of_hash, UidDigest::Of(Uid("")));
  // Each of these differs from the UUID in one position.
  for (size_t i = 0; i < kUuid.size(); ++i) {
    for (const char c : {'g', 'A', '-', '/', ':', '`', '1'}) {
      std::string other(kUuid);
      if (other[i] == c) continue;
      other[i] = c;
      EXPECT_NE(UidDigest::Of(Uid(other)), UidDigest::Of(Uid(kUuid))) << other;
    }
  }
  EXPECT_NE(UidDigest::Of(Uid("0123456789abcdef00112233445566ff")), UidDigest::Of(Uid(kUuid)));
}

}  // namespace
}  // namespace tessera::kube
