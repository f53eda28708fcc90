// SPDX-License-Identifier: Apache-2.0
#include "src/base/shared_pool.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

using Text = SharedValue<std::string>;

TEST(SharedValueTest, IsComparedByValue) {
  EXPECT_EQ(Text(), Text(""));
  EXPECT_EQ(Text("a"), Text("a"));
  EXPECT_FALSE(Text("a") == Text("b"));
}

TEST(SharedValueTest, CopiesShareTheirValueUntilOneIsUpdated) {
  Text a("a");
  const Text copy = a;
  EXPECT_EQ(&*a, &*copy);
  a.Update([](std::string& text) { text += "b"; });
  EXPECT_EQ(*a, "ab");
  EXPECT_EQ(*copy, "a");
  a.Update([](std::string& text) { text.clear(); });
  EXPECT_EQ(&*a, &*Text());
}

TEST(SharedPoolTest, EqualValuesShareOneCopy) {
  SharedPool<std::string> pool;
  const Text a = pool.Get(Text("a")), b = pool.Get(Text("b"));
  EXPECT_EQ(*a, "a");
  EXPECT_EQ(*b, "b");
  EXPECT_EQ(&*pool.Get(Text("a")), &*a);
  EXPECT_EQ(&*pool.Get(Text("b")), &*b);
  EXPECT_EQ(pool.size(), 2u);
}

TEST(SharedPoolTest, KeepsOnlyValuesInUse) {
  SharedPool<int> pool;
  std::vector<SharedValue<int>> used;
  for (int i = 0; i < 100; ++i) used.push_back(pool.Get(SharedValue<int>(-i)));
  for (int i = 1; i < 100'000; ++i) EXPECT_EQ(*pool.Get(SharedValue<int>(i)), i);
  EXPECT_LE(pool.size(), 400u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(&*pool.Get(SharedValue<int>(-i)), &*used[i]);
}

TEST(SharedPoolTest, ValuesOutliveThePool) {
  Text kept;
  {
    SharedPool<std::string> pool;
    kept = pool.Get(Text("kept"));
  }
  EXPECT_EQ(*kept, "kept");
}

}  // namespace
}  // namespace tessera
