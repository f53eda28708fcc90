// SPDX-License-Identifier: Apache-2.0
#include "src/base/uid.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>

namespace tessera {
namespace {

TEST(UidTest, TextsAndUidsAreConvertedOnlyExplicitly) {
  EXPECT_FALSE((std::is_convertible_v<std::string, Uid>));
  EXPECT_FALSE((std::is_convertible_v<std::string_view, Uid>));
  EXPECT_FALSE((std::is_convertible_v<const char*, Uid>));
  EXPECT_FALSE((std::is_convertible_v<Uid, std::string>));
  EXPECT_FALSE((std::is_convertible_v<Uid, std::string_view>));
  EXPECT_FALSE((std::is_assignable_v<Uid&, std::string>));
  EXPECT_FALSE((std::is_invocable_v<std::equal_to<>, Uid, std::string>));
}

TEST(UidTest, KeepsItsText) {
  const std::string text = "fd3b355a-665c-4c95-8e7f-61fd2111689f";
  EXPECT_EQ(Uid(text).str(), text);
  EXPECT_EQ(Uid(std::string_view(text)).str(), text);
  EXPECT_EQ(Uid(text.c_str()), Uid(text));
  EXPECT_FALSE(Uid(text).empty());
  EXPECT_TRUE(Uid().empty());
  EXPECT_EQ(Uid(), Uid(""));
}

TEST(UidTest, IsOrderedAsItsText) {
  EXPECT_LT(Uid("a"), Uid("b"));
  EXPECT_LT(Uid("a"), Uid("aa"));
  const std::map<Uid, int> by_uid = {{Uid("b"), 2}, {Uid("a"), 1}};
  EXPECT_EQ(by_uid.begin()->second, 1);
}

TEST(UidTest, IsAKeyOfHashTables) {
  const std::unordered_set<Uid> uids = {Uid("a"), Uid("b"), Uid("a")};
  EXPECT_EQ(uids.size(), 2u);
  EXPECT_TRUE(uids.contains(Uid("b")));
  EXPECT_FALSE(uids.contains(Uid("c")));
}

TEST(UidTest, IsFormattedAsItsText) {
  EXPECT_EQ(fmt::format("pod {}, [{:>3}]", Uid("uid-a"), Uid("a")), "pod uid-a, [  a]");
}

}  // namespace
}  // namespace tessera
