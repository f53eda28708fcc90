// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/table.h"

#include <gtest/gtest.h>

#include "src/limiter/testing/exhausted_memory.h"

namespace tessera::limiter {
namespace {

uint32_t HashOfKey(uint64_t key) { return uint32_t(key); }
using Numbers = Table<uint64_t, HashOfKey>;

TEST(TableTest, AKnownKeyIsFoundWhenTheTableCannotGrow) {
  static Numbers table;
  bool added = false;
  uint64_t new_key = 1;
  table.Add(new_key++, &added)->value = 5;
  const uint32_t capacity = table.capacity();
  Numbers::Entry* known = nullptr;
  {
    const ExhaustedMemory exhausted;
    while (table.Add(new_key, &added) != nullptr) ++new_key;
    known = table.Add(1, &added);
  }
  EXPECT_EQ(table.capacity(), capacity);
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->value, 5u);
  EXPECT_FALSE(added);
  EXPECT_NE(table.Add(new_key, &added), nullptr) << "memory is available again";
  EXPECT_TRUE(added);
  EXPECT_GT(table.capacity(), capacity);
  table.Clear();
}

TEST(TableTest, AddKeepsTheValueOfAKnownKey) {
  static Numbers table;
  bool added = false;
  table.Add(3, &added)->value = 7;
  EXPECT_TRUE(added);
  EXPECT_EQ(table.Add(3, &added)->value, 7u);
  EXPECT_FALSE(added);
  table.Clear();
}

}  // namespace
}  // namespace tessera::limiter
