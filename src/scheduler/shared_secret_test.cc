// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/shared_secret.h"

#include <gtest/gtest.h>

namespace tessera::scheduler {
namespace {

TEST(SharedSecretTest, OnlyAConflictMeansThatAnotherReplicaWasFaster) {
  EXPECT_TRUE(LostRace(Status(Code::kAborted, "")));
  EXPECT_TRUE(LostRace(Status(Code::kAlreadyExists, "")));
  EXPECT_FALSE(LostRace(Status::Ok()));
  EXPECT_FALSE(LostRace(Status(Code::kUnavailable, "")));
}

}  // namespace
}  // namespace tessera::scheduler
