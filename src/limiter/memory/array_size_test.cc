// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/memory/array_size.h"

#include <gtest/gtest.h>

namespace tessera::limiter {
namespace {

using cuda::Array3DDescriptor;

constexpr uint64_t kMiB = 1 << 20;

uint64_t Square(unsigned format, unsigned channels) {
  return ArrayBytes({.width = 1024, .height = 1024, .format = format, .channels = channels});
}

TEST(ArraySizeTest, CountsAllElements) {
  EXPECT_EQ(Square(cuda::kFormatUint8, 1), kMiB);
  EXPECT_EQ(Square(cuda::kFormatInt16, 2), 4 * kMiB);
  EXPECT_EQ(Square(cuda::kFormatHalf, 4), 8 * kMiB);
  EXPECT_EQ(Square(cuda::kFormatFloat, 4), 16 * kMiB);
  EXPECT_EQ(ArrayBytes({.width = 1024, .height = 1024, .depth = 7, .format = 1, .channels = 1}),
            7 * kMiB);
}

TEST(ArraySizeTest, PacksChannelsAsTheFormatDoes) {
  EXPECT_EQ(Square(0xb0, 3), 3 * kMiB / 2) << "NV12";
  EXPECT_EQ(Square(0x9f, 3), 3 * kMiB) << "P010";
  EXPECT_EQ(Square(0xb1, 4), 8 * kMiB) << "Y416";
  EXPECT_EQ(Square(0x91, 4), kMiB / 2) << "BC1";
  EXPECT_EQ(Square(0x9d, 4), kMiB) << "BC7";
  EXPECT_EQ(Square(0xc5, 4), 8 * kMiB) << "four normalized channels of 16 bits";
  EXPECT_EQ(Square(0x7000, 2), 8 * kMiB) << "an unknown format";
}

TEST(ArraySizeTest, RowsArePaddedToTiles) {
  EXPECT_EQ(ArrayBytes({.width = 1, .format = 1, .channels = 1}), 512u);
  EXPECT_EQ(ArrayBytes({.width = 65, .height = 9, .format = 1, .channels = 1}), 128u * 16);
  EXPECT_EQ(ArrayBytes({.width = 1, .height = 1, .format = 0x91, .channels = 4}), 512u);
}

TEST(ArraySizeTest, AMipmapHasAsManyLevelsAsItsExtentAllows) {
  const Array3DDescriptor descriptor{.width = 1024, .height = 1024, .format = 1, .channels = 4};
  EXPECT_EQ(MipmapBytes(descriptor, 0), 4 * kMiB);
  EXPECT_EQ(MipmapBytes(descriptor, 1), 4 * kMiB);
  EXPECT_EQ(MipmapBytes(descriptor, 2), 5 * kMiB);
  EXPECT_EQ(MipmapBytes(descriptor, 11), MipmapBytes(descriptor, 1000));
  EXPECT_GT(MipmapBytes(descriptor, 11), MipmapBytes(descriptor, 10));
  Array3DDescriptor deep = descriptor;
  deep.depth = 2;
  EXPECT_EQ(MipmapBytes(deep, 2), 9 * kMiB) << "the second level has half the depth";
  deep.flags = cuda::kArrayLayered;
  EXPECT_EQ(MipmapBytes(deep, 2), 10 * kMiB) << "each level has all layers";
}

TEST(ArraySizeTest, SparseDeferredAndInvalidArraysTakeNoMemory) {
  Array3DDescriptor descriptor{.width = 1024, .height = 1024, .format = 1, .channels = 4};
  descriptor.flags = cuda::kArraySparse;
  EXPECT_EQ(ArrayBytes(descriptor), 0u);
  descriptor.flags = cuda::kArrayDeferredMapping;
  EXPECT_EQ(MipmapBytes(descriptor, 3), 0u);
  EXPECT_EQ(ArrayBytes({.width = 0, .height = 1, .format = 1, .channels = 1}), 0u);
  EXPECT_EQ(ArrayBytes({.width = SIZE_MAX, .height = SIZE_MAX, .format = 1, .channels = 1}), 0u);
  EXPECT_EQ(ArrayBytes({.width = 1, .height = 1, .format = 1, .channels = 1 << 30}), 0u);
}

}  // namespace
}  // namespace tessera::limiter
