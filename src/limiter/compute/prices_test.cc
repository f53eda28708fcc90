// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/compute/prices.h"

#include <gtest/gtest.h>

#include <memory>

namespace tessera::limiter {
namespace {

constexpr uint64_t kFunction = 0x7f0012345670;

class PricesTest : public ::testing::Test {
 protected:
  void Learn(uint64_t size, int64_t nanoseconds) {
    Prices::Learn(prices_->Add(PriceKey({kFunction, size})), nanoseconds);
  }
  Prices::Similar Similar(uint64_t size) { return prices_->FindSimilar({kFunction, size}); }

  const std::unique_ptr<Prices> prices_ = std::make_unique<Prices>();
};

TEST_F(PricesTest, SizesOfAClassDifferByAQuarterAtMost) {
  for (uint64_t size = 0; size < 8; ++size) {
    EXPECT_EQ(SizeClass(size), size);
    EXPECT_EQ(LeastSize(size), size);
  }
  for (const uint64_t size : {8ull, 9ull, 100ull, 65'535ull, 1ull << 31, 3ull << 61, ~0ull}) {
    const uint64_t least = LeastSize(SizeClass(size));
    EXPECT_LE(least, size);
    EXPECT_LT(double(size) / double(least), 1.25001) << size;
    EXPECT_EQ(SizeClass(least), SizeClass(size));
    EXPECT_EQ(SizeClass(least - 1) + 1, SizeClass(size));
  }
}

TEST_F(PricesTest, GridsOfTheSameSizeHaveTheSameKey) {
  EXPECT_EQ(PriceKey(KernelWork(kFunction, 1000, 1, 1)),
            PriceKey(KernelWork(kFunction, 10, 20, 5)));
  EXPECT_NE(PriceKey(KernelWork(kFunction, 1000, 1, 1)),
            PriceKey(KernelWork(kFunction, 10, 20, 8)));
  EXPECT_NE(PriceKey(KernelWork(kFunction, 1, 1, 1)),
            PriceKey(KernelWork(kFunction + 16, 1, 1, 1)));
}

TEST_F(PricesTest, AnUnknownFunctionHasNoSimilarPrice) {
  Prices::Learn(prices_->Add(PriceKey({kFunction + 16, 100})), 5'000);
  EXPECT_EQ(Similar(100).price, kUnpriced);
  EXPECT_FALSE(Similar(100).outstanding);
  prices_->Add(PriceKey({kFunction, 1000}))->outstanding = 1;
  EXPECT_EQ(Similar(100).price, kUnpriced);
  EXPECT_TRUE(Similar(100).outstanding) << "another size of the function is being timed";
}

TEST_F(PricesTest, APriceIsEstimatedFromTheNearestSizes) {
  Learn(1024, 10'000);
  EXPECT_EQ(Similar(4096).price, 40'000) << "grows with the size";
  EXPECT_EQ(Similar(2).price, 10'000) << "at most the price of a larger size";
  Learn(4096, 22'000);
  EXPECT_EQ(Similar(2048).price, 14'000);
  EXPECT_EQ(Similar(8192).price, 44'000);
  EXPECT_FALSE(Similar(8192).outstanding);
  EXPECT_EQ(Similar(uint64_t(1) << 40).price, kUnpriced) << "too far away";
}

TEST_F(PricesTest, ALaunchThatIsBeingTimedKeepsItsEntry) {
  Price* const timed = prices_->Add(PriceKey({kFunction, 1}));
  timed->outstanding = 1;
  for (uint64_t other = 1; other < 100'000; ++other) prices_->Add(PriceKey({kFunction + other, 1}));
  EXPECT_EQ(prices_->Find(PriceKey({kFunction, 1})), timed);
  timed->outstanding = 0;
  for (uint64_t other = 1; other < 100'000; ++other) prices_->Add(PriceKey({~other, 1}));
  EXPECT_EQ(prices_->Find(PriceKey({kFunction, 1})), nullptr)
      << "the full table has evicted the entry";
}

TEST_F(PricesTest, AForgottenPriceKeepsItsOutstandingLaunches) {
  Learn(8, 1000);
  Price* const price = prices_->Find(PriceKey({kFunction, 8}));
  ASSERT_NE(price, nullptr);
  price->outstanding = 2;
  const uint32_t version = price->version;
  prices_->Forget({kFunction, 8});
  EXPECT_EQ(price->key, PriceKey({kFunction, 8}));
  EXPECT_EQ(price->price, kUnpriced);
  EXPECT_EQ(price->samples, 0u);
  EXPECT_EQ(price->outstanding, 2u);
  EXPECT_NE(price->version, version);
  prices_->ForgetAll();
  EXPECT_EQ(price->outstanding, 2u);
}

}  // namespace
}  // namespace tessera::limiter
