// SPDX-License-Identifier: Apache-2.0
#include "src/kube/keyed_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "src/base/random.h"

namespace tessera::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class KeyedQueueTest : public ::testing::Test {
 protected:
  KeyedQueue& queue() {
    if (!queue_) {
      queue_ = std::make_unique<KeyedQueue>(
          runner_, options_, [this](const std::string& key, const KeyedQueue::Done& done) {
            log_ += key + " ";
            if (hold_done_) {
              held_done_.emplace_back(done);
            } else {
              done(answer_);
            }
          });
    }
    return *queue_;
  }

  FakeTaskRunner runner_;
  KeyedQueue::Options options_;
  std::string log_;
  bool hold_done_ = false;
  Status answer_;
  std::vector<KeyedQueue::Done> held_done_;
  std::unique_ptr<KeyedQueue> queue_;
};

TEST_F(KeyedQueueTest, WaitingKeyIsProcessedOnce) {
  queue().Add("a");
  queue().Add("b");
  queue().Add("a");
  EXPECT_EQ(log_, "");
  runner_.RunUntilIdle();
  EXPECT_EQ(log_, "a b ");
  EXPECT_EQ(queue().waiting(), 0u);
}

TEST_F(KeyedQueueTest, RunningKeyRunsAgainAfterItEnds) {
  hold_done_ = true;
  options_.max_running = 2;
  queue().Add("a");
  runner_.RunUntilIdle();
  queue().Add("a");
  queue().Add("a");
  queue().Add("b");
  runner_.RunUntilIdle();
  EXPECT_EQ(log_, "a b ");
  held_done_[0](Status::Ok());
  held_done_[0](Status::Ok());  // counts only once
  runner_.RunUntilIdle();
  EXPECT_EQ(log_, "a b a ");
  EXPECT_EQ(queue().running(), 2u);
}

TEST_F(KeyedQueueTest, RunsAtMostMaxRunningKeys) {
  hold_done_ = true;
  options_.max_running = 2;
  for (const char* key : {"a", "b", "c"}) queue().Add(key);
  runner_.RunUntilIdle();
  EXPECT_EQ(log_, "a b ");
  held_done_[1](Status::Ok());
  runner_.RunUntilIdle();
  EXPECT_EQ(log_, "a b c ");
}

TEST_F(KeyedQueueTest, AFailedKeyWaitsLongerEachTimeAndOthersDoNot) {
  answer_ = Error(Code::kUnavailable, "no");
  queue().Add("a");
  runner_.RunUntilIdle();
  MonotonicTime last = runner_.clock().Now();
  for (int failures = 0; failures < 5; ++failures) {
    log_.clear();
    while (log_.empty()) runner_.AdvanceTimeAndRun(milliseconds(1));
    const Duration waited = runner_.clock().Now() - last;
    const Duration whole = options_.first_wait * (1 << failures);
    EXPECT_GE(waited, whole / 2);
    EXPECT_LE(waited, whole + milliseconds(1));
    last = runner_.clock().Now();
  }
  answer_ = {};
  log_.clear();
  queue().Add("b");
  queue().Add("a");  // a change ends the wait
  runner_.RunUntilIdle();
  EXPECT_EQ(log_, "b a ");
  runner_.AdvanceTimeAndRun(seconds(60));
  EXPECT_EQ(log_, "b a ");
  // The failure count was reset.
  answer_ = Error(Code::kUnavailable, "no");
  queue().Add("a");
  runner_.RunUntilIdle();
  log_.clear();
  runner_.AdvanceTimeAndRun(options_.first_wait);
  EXPECT_EQ(log_, "a ");
}

TEST_F(KeyedQueueTest, TheEarliestOfSeveralDelaysCounts) {
  queue().AddAfter("a", seconds(5));
  queue().AddAfter("a", seconds(2));
  queue().AddAfter("a", seconds(9));
  runner_.AdvanceTimeAndRun(seconds(1));
  EXPECT_EQ(log_, "");
  EXPECT_EQ(queue().waiting(), 1u);
  runner_.AdvanceTimeAndRun(seconds(1));
  EXPECT_EQ(log_, "a ");
  runner_.AdvanceTimeAndRun(seconds(20));
  EXPECT_EQ(log_, "a ");
}

TEST_F(KeyedQueueTest, DoneMayComeAfterTheQueueIsGone) {
  hold_done_ = true;
  queue().Add("a");
  runner_.RunUntilIdle();
  queue().Add("b");
  queue_.reset();
  held_done_[0](Status::Ok());
  runner_.RunUntilIdle();
  EXPECT_EQ(log_, "a ");
}

// Random histories: no key is processed concurrently, and work follows each addition.
TEST_F(KeyedQueueTest, EveryAddedKeyIsProcessedAfterwards) {
  Random random(5);
  std::map<std::string, int> changes;
  std::map<std::string, int> seen;
  std::map<std::string, int> running;
  options_.max_running = 3;
  KeyedQueue queue(runner_, options_, [&](const std::string& key, const KeyedQueue::Done& done) {
    EXPECT_EQ(running[key]++, 0);
    const int version = changes[key];
    runner_.PostDelayed(milliseconds(random.Below(300)), [&, key, done, version] {
      --running[key];
      if (random.Below(3) == 0) return done(Error(Code::kUnavailable, "no"));
      seen[key] = version;
      done(Status::Ok());
    });
  });
  for (int i = 0; i < 3000; ++i) {
    const std::string key = fmt::format("{}", random.Below(12));
    ++changes[key];
    if (random.Below(4) == 0) {
      queue.AddAfter(key, milliseconds(random.Below(500)));
    } else {
      queue.Add(key);
    }
    runner_.AdvanceTimeAndRun(milliseconds(random.Below(100)));
  }
  runner_.AdvanceTimeAndRun(std::chrono::hours(2));
  EXPECT_EQ(seen, changes);
  EXPECT_EQ(queue.waiting() + queue.running(), 0u);
}

}  // namespace
}  // namespace tessera::kube
