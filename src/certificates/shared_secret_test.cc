// SPDX-License-Identifier: Apache-2.0
#include "src/certificates/shared_secret.h"

#include <gtest/gtest.h>

namespace tessera::certificates {
namespace {

TEST(SharedSecretTest, RecognizesConflictsWithAnotherWriter) {
  EXPECT_TRUE(IsWriteConflict(Status(Code::kAborted, "")));
  EXPECT_TRUE(IsWriteConflict(Status(Code::kAlreadyExists, "")));
  EXPECT_FALSE(IsWriteConflict(Status::Ok()));
  EXPECT_FALSE(IsWriteConflict(Status(Code::kUnavailable, "")));
}

}  // namespace
}  // namespace tessera::certificates
