// SPDX-License-Identifier: Apache-2.0
#include "src/base/uuid_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace tessera {
namespace {

constexpr std::string_view kUuid = "01234567-89ab-cdef-0011-2233445566ff";

TEST(UuidTextTest, StoresUuidsInPlaceAndOtherTextsUnchanged) {
  static_assert(sizeof(UuidText) <= 24);
  for (const std::string_view prefix : {"", "GPU-", "MIG-"}) {
    const std::string uuid = std::string(prefix).append(kUuid);
    EXPECT_EQ(UuidText(uuid).str(), uuid);
    // Each text differs from the UUID in at most one position.
    for (size_t i = 0; i < uuid.size(); ++i) {
      for (const char c : {'g', 'A', '-', '/', ':', '`', '1', 'G', 'M'}) {
        std::string other = uuid;
        other[i] = c;
        EXPECT_EQ(UuidText(other).str(), other);
        EXPECT_EQ(UuidText(other) == UuidText(uuid), other == uuid) << other;
        EXPECT_EQ(UuidText(other) < UuidText(uuid), other < uuid) << other;
      }
    }
  }
  EXPECT_NE(UuidText("00000000-0000-0000-0000-000000000000"), UuidText());
}

TEST(UuidTextTest, IsOrderedAndHashedAsItsText) {
  std::unordered_set<UuidText> hashed;
  std::vector<std::string> texts = {"",     "GPU-",  "GPU-a", "GPU", "MIG-GPU-a/1/0",
                                    "a\"b", "MIG-a", "0",     "f",   "g"};
  for (const std::string_view prefix : {"", "GPU-", "MIG-", "gpu-", "GPU-GPU-"}) {
    texts.push_back(std::string(prefix).append(kUuid));
  }
  for (const std::string& a : texts) {
    EXPECT_EQ(UuidText(a).str(), a);
    EXPECT_EQ(UuidText(a).empty(), a.empty());
    for (const std::string& b : texts) EXPECT_EQ(UuidText(a) <=> UuidText(b), a <=> b) << a << b;
    EXPECT_TRUE(hashed.insert(UuidText(a)).second);
    EXPECT_TRUE(hashed.contains(UuidText(a)));
  }
}

TEST(UuidTextTest, TextsAreConvertedOnlyExplicitly) {
  EXPECT_FALSE((std::is_convertible_v<std::string, UuidText>));
  EXPECT_FALSE((std::is_convertible_v<UuidText, std::string>));
}

}  // namespace
}  // namespace tessera
