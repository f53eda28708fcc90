// SPDX-License-Identifier: Apache-2.0
#include "src/base/weak_ptr.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

namespace tessera {
namespace {

struct Counter {
  std::function<void()> Increment() {
    return [weak = weak_.Get()] {
      if (weak) ++weak->count;
    };
  }
  int count = 0;
  WeakPtrFactory<Counter> weak_{this};
};

TEST(WeakPtrTest, ACallbackFindsItsObjectWhileItLives) {
  std::optional<Counter> counter;
  counter.emplace();
  const std::function<void()> increment = counter->Increment();
  increment();
  EXPECT_EQ(counter->count, 1);
  const WeakPtr<Counter> weak = counter->weak_.Get();
  EXPECT_EQ(weak.get(), &*counter);
  counter.reset();
  increment();
  EXPECT_FALSE(weak);
}

TEST(WeakPtrTest, ADefaultPointerIsNull) { EXPECT_EQ(WeakPtr<int>().get(), nullptr); }

TEST(WeakPtrTest, PointersDoNotReferToALaterObjectAtTheSameAddress) {
  std::optional<Counter> counter;
  counter.emplace();
  const WeakPtr<Counter> first = counter->weak_.Get();
  counter.emplace();
  EXPECT_FALSE(first);
  EXPECT_TRUE(counter->weak_.Get());
}

}  // namespace
}  // namespace tessera
