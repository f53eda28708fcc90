// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/physical_memory.h"

#include <gtest/gtest.h>

#include "src/limiter/testing/exhausted_memory.h"

namespace tessera::limiter {
namespace {

// The driver may import a piece under the handle of a piece that it has freed.
TEST(PhysicalPiecesTest, TheOldChargeOfAReusedHandleEndsEvenIfTheNewPieceCannotBeAdded) {
  constexpr uint64_t kHandle = 16, kBytes = 4 << 20;
  static PhysicalPieces pieces;
  uint64_t ended_bytes = 0;
  pieces.Open(
      [](void* sum, const EndedCharge& ended) { *static_cast<uint64_t*>(sum) += ended.bytes; },
      &ended_bytes, /*container_pieces=*/nullptr);
  ASSERT_TRUE(pieces.Add(kHandle, 0, kBytes));
  bool added = true;
  {
    const ExhaustedMemory exhausted;
    uint64_t charge = 0;
    added = pieces.AddImported(kHandle, 0, {.id = 5, .bytes = kBytes}, &charge);
  }
  EXPECT_FALSE(added);
  EXPECT_EQ(ended_bytes, kBytes);
  pieces.Release(kHandle, UINT64_MAX);
  EXPECT_EQ(ended_bytes, kBytes) << "the handle has no charge any more";
  pieces.Reset();
}

}  // namespace
}  // namespace tessera::limiter
