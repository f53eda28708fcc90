// SPDX-License-Identifier: Apache-2.0
// Arrays as image and video programs use them: creation, copies, and device memory.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "src/sim/cuda/one_gpu_test.h"

namespace tessera::cuda {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

class ArrayTest : public OneGpuTest {
 protected:
  static Array Create(const Array3DDescriptor& descriptor) {
    Array array = nullptr;
    EXPECT_OK(CU(*cuda_, cuArray3DCreate_v2)(&array, &descriptor));
    return array;
  }
  // Device memory of an array with this descriptor.
  static uint64_t MemoryOf(const Array3DDescriptor& descriptor) {
    const Array array = Create(descriptor);
    const uint64_t taken = UsedBytes();
    EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
    return taken;
  }
};

TEST_F(ArrayTest, AnArrayTakesWholeBlocksWithRowsInTiles) {
  EXPECT_EQ(MemoryOf({.width = 1024, .height = 1024, .format = kFormatFloat, .channels = 4}),
            16 * kMiB);
  EXPECT_EQ(MemoryOf({.width = 1025, .height = 1024, .format = kFormatFloat, .channels = 4}),
            18 * kMiB);
  EXPECT_EQ(MemoryOf({.width = 1024, .height = 1024, .depth = 10, .format = 0x10, .channels = 1}),
            20 * kMiB);
  EXPECT_EQ(MemoryOf({.width = 1, .height = 1 << 16, .format = kFormatUint8, .channels = 1}),
            4 * kMiB)
      << "a row takes 64 bytes";
  EXPECT_EQ(MemoryOf({.width = 100, .format = kFormatUint8, .channels = 1}), 2 * kMiB);
  Array3DDescriptor sparse{.width = 1024, .height = 1024, .format = kFormatFloat, .channels = 4};
  sparse.flags = kArraySparse;
  EXPECT_EQ(MemoryOf(sparse), 0u);
}

TEST_F(ArrayTest, SmallArraysShareABlock) {
  std::vector<Array> arrays;
  DevicePtr other = 0;
  EXPECT_OK(CU(*cuda_, cuMemAlloc_v2)(&other, 1000));
  for (int i = 0; i < 16; ++i) {
    arrays.push_back(Create({.width = 256, .height = 128, .format = kFormatFloat, .channels = 1}));
  }
  EXPECT_EQ(UsedBytes(), 4 * kMiB) << "16 arrays of 128 KiB, and a block of linear memory";
  for (Array array : arrays) EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(other));
}

TEST_F(ArrayTest, AMipmapTakesAllOfItsLevels) {
  const Array3DDescriptor descriptor{
      .width = 4096, .height = 4096, .format = kFormatUint8, .channels = 4};
  MipmappedArray mipmap = nullptr;
  ASSERT_OK(CU(*cuda_, cuMipmappedArrayCreate)(&mipmap, &descriptor, 3));
  EXPECT_EQ(UsedBytes(), 84 * kMiB) << "64, 16 and 4 MiB";
  Array level = nullptr;
  ArrayDescriptor of_level{};
  ASSERT_OK(CU(*cuda_, cuMipmappedArrayGetLevel)(&level, mipmap, 2));
  ASSERT_OK(CU(*cuda_, cuArrayGetDescriptor_v2)(&of_level, level));
  EXPECT_EQ(of_level.width, 1024u);
  EXPECT_EQ(of_level.height, 1024u);
  EXPECT_EQ(CU(*cuda_, cuArrayDestroy)(level), Result::kInvalidHandle);
  EXPECT_EQ(CU(*cuda_, cuMipmappedArrayGetLevel)(&level, mipmap, 3), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMipmappedArrayDestroy)(mipmap));
  EXPECT_EQ(CU(*cuda_, cuMipmappedArrayDestroy)(mipmap), Result::kInvalidHandle);
  ASSERT_OK(CU(*cuda_, cuMipmappedArrayCreate)(&mipmap, &descriptor, 100));
  EXPECT_OK(CU(*cuda_, cuMipmappedArrayGetLevel)(&level, mipmap, 12))
      << "the last level has one element";
  EXPECT_EQ(CU(*cuda_, cuMipmappedArrayGetLevel)(&level, mipmap, 13), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMipmappedArrayDestroy)(mipmap));
}

TEST_F(ArrayTest, DescriptorsCanBeRead) {
  const Array array = Create({.width = 8, .height = 6, .depth = 5, .format = 3, .channels = 2});
  Array3DDescriptor full{};
  Array3DDescriptorV1 old{};
  EXPECT_OK(CU(*cuda_, cuArray3DGetDescriptor_v2)(&full, array));
  EXPECT_OK(CU(*cuda_, cuArray3DGetDescriptor)(&old, array));
  EXPECT_EQ(full.depth, 5u);
  EXPECT_EQ(full.channels, 2u);
  EXPECT_EQ(old.width, 8u);
  EXPECT_EQ(old.format, 3u);
  EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
  EXPECT_EQ(CU(*cuda_, cuArray3DGetDescriptor_v2)(&full, array), Result::kInvalidHandle);
}

TEST_F(ArrayTest, RowsAndBytesOfAnArrayAreCopied) {
  constexpr size_t kWidth = 100, kHeight = 50;
  const Array array = Create({.width = kWidth, .height = kHeight, .format = 1, .channels = 1});
  std::vector<char> data(kWidth * kHeight), back(10 * 20);
  std::iota(data.begin(), data.end(), 0);
  ASSERT_OK(CU(*cuda_, cuMemcpyHtoA_v2)(array, 0, data.data(), data.size()));
  Memcpy2D copy{};
  copy.src_type = MemoryType::kArray;
  copy.src_array = array;
  copy.src_x = 7;
  copy.src_y = 3;
  copy.dst_type = MemoryType::kHost;
  copy.dst_host = back.data();
  copy.width = 10;
  copy.height = 20;
  ASSERT_OK(CU(*cuda_, cuMemcpy2D_v2)(&copy));
  for (size_t y = 0; y < 20; ++y) {
    for (size_t x = 0; x < 10; ++x) {
      ASSERT_EQ(back[y * 10 + x], data[(y + 3) * kWidth + x + 7]) << x << " " << y;
    }
  }
  copy.src_x = 91;
  EXPECT_EQ(CU(*cuda_, cuMemcpy2D_v2)(&copy), Result::kInvalidValue) << "beyond the row";
  EXPECT_EQ(CU(*cuda_, cuMemcpyAtoH_v2)(back.data(), array, 4999, 2), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMemcpyAtoH_v2)(back.data(), array, 4999, 1));
  EXPECT_EQ(back[0], data[4999]);
  EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
}

TEST_F(ArrayTest, TheEndOfAContextEndsItsArrays) {
  Context context = nullptr;
  ASSERT_OK(CU(*cuda_, cuCtxCreate_v2)(&context, 0, 0));
  const Array array = Create({.width = 4096, .height = 4096, .format = 1, .channels = 4});
  MipmappedArray mipmap = nullptr;
  const Array3DDescriptor descriptor{.width = 4096, .height = 4096, .format = 1, .channels = 4};
  ASSERT_OK(CU(*cuda_, cuMipmappedArrayCreate)(&mipmap, &descriptor, 2));
  EXPECT_EQ(UsedBytes(), 244 * kMiB);
  ASSERT_OK(CU(*cuda_, cuCtxDestroy_v2)(context));
  EXPECT_EQ(UsedBytes(), 0u);
  EXPECT_EQ(CU(*cuda_, cuArrayDestroy)(array), Result::kInvalidHandle);
}

TEST_F(ArrayTest, InvalidDescriptorsAreRefused) {
  Array array = nullptr;
  Array3DDescriptor descriptor{.width = 64, .height = 64, .format = 1, .channels = 3};
  const auto create = [&] { return CU(*cuda_, cuArray3DCreate_v2)(&array, &descriptor); };
  EXPECT_EQ(create(), Result::kInvalidValue) << "channels";
  descriptor = {.width = 0, .height = 64, .format = 1, .channels = 1};
  EXPECT_EQ(create(), Result::kInvalidValue) << "width";
  descriptor = {.width = 64, .height = 0, .depth = 64, .format = 1, .channels = 1};
  EXPECT_EQ(create(), Result::kInvalidValue) << "depth without height";
  descriptor.flags = kArrayLayered;
  EXPECT_OK(create()) << "layers of one row are valid";
  EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
  descriptor = {.width = 1 << 17, .height = 1 << 16, .format = kFormatFloat, .channels = 4};
  EXPECT_EQ(create(), Result::kOutOfMemory);
  EXPECT_EQ(CU(*cuda_, cuArray3DCreate_v2)(nullptr, &descriptor), Result::kInvalidValue);
  constexpr size_t kHuge = 1 << 20;  // the bytes of a cube with these edges overflow to 0
  descriptor = {.width = kHuge, .height = kHuge, .depth = kHuge, .format = kFormatFloat};
  descriptor.channels = 4;
  MipmappedArray mipmap = nullptr;
  EXPECT_EQ(CU(*cuda_, cuMipmappedArrayCreate)(&mipmap, &descriptor, 2), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuArrayDestroy)(nullptr), Result::kInvalidHandle);
}

TEST_F(ArrayTest, ExtentsBeyondTheAttributesOfTheDeviceAreRefused) {
  struct Extents {
    size_t width, height, depth;
    unsigned flags;
  };
  const auto create = [&](const Extents& extents) {
    const Array3DDescriptor descriptor{.width = extents.width,
                                       .height = extents.height,
                                       .depth = extents.depth,
                                       .format = kFormatUint8,
                                       .channels = 1,
                                       .flags = extents.flags};
    Array array = nullptr;
    const Result result = CU(*cuda_, cuArray3DCreate_v2)(&array, &descriptor);
    if (result == Result::kSuccess) {
      EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
    }
    return result;
  };
  const Extents largest[] = {{131'072, 0, 0, 0},
                             {131'072, 1, 0, 0},
                             {1, 65'536, 0, 0},
                             {1, 1, 16'384, 0},
                             {32'768, 0, 1, kArrayLayered},
                             {1, 0, 2048, kArrayLayered},
                             {1, 1, 2048, kArrayLayered}};
  for (const Extents& fits : largest) {
    EXPECT_OK(create(fits)) << fits.width << " " << fits.height << " " << fits.depth;
    for (size_t Extents::*extent : {&Extents::width, &Extents::height, &Extents::depth}) {
      Extents beyond = fits;
      if (beyond.*extent > 1) {
        ++(beyond.*extent);
        EXPECT_EQ(create(beyond), Result::kInvalidValue)
            << beyond.width << " " << beyond.height << " " << beyond.depth;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cuda
