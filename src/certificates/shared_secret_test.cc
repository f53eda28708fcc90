// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/shared_secret.h"

#include <gtest/gtest.h>

namespace tessera::certificates {
namespace {

TEST(SharedSecretTest, OnlyAConflictMeansThatAnotherReplicaWasFaster) {
  EXPECT_TRUE(LostRace(Status(Code::kAborted, "")));
  EXPECT_TRUE(LostRace(Status(Code::kAlreadyExists, "")));
  EXPECT_FALSE(LostRace(Status::Ok()));
  EXPECT_FALSE(LostRace(Status(Code::kUnavailable, "")));
}

}  // namespace
}  // namespace tessera::certificates
