// SPDX-License-Identifier: Apache-2.0
// Copies of boxes and fills of rows.
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "src/sim/cuda/one_gpu_test.h"

namespace tessera::cuda {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

using Bytes = std::vector<unsigned char>;

class CopyTest : public OneGpuTest {
 protected:
  void SetUp() override { ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&memory_, kBytes)); }
  void TearDown() override {
    EXPECT_OK(CU(*cuda_, cuMemFree_v2)(memory_));
    OneGpuTest::TearDown();
  }
  Bytes Contents() const {
    Bytes bytes(kBytes);
    EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(bytes.data(), memory_, kBytes));
    return bytes;
  }

  static constexpr size_t kBytes = 4096;
  DevicePtr memory_ = 0;
};

// A copy of 2 x 3 x 2 bytes to (1, 2, 1) of memory with rows of 8 bytes and planes of 6 rows.
Memcpy3D ToBox(DevicePtr memory, const Bytes& host) {
  return {.src_type = MemoryType::kHost,
          .src_host = host.data(),
          .dst_x = 1,
          .dst_y = 2,
          .dst_z = 1,
          .dst_type = MemoryType::kDevice,
          .dst_device = memory,
          .dst_pitch = 8,
          .dst_height = 6,
          .width = 2,
          .height = 3,
          .depth = 2};
}

TEST_F(CopyTest, ABoxIsWrittenAtItsPositionInEveryPlane) {
  ASSERT_OK(CU(*cuda_, cuMemsetD8_v2)(memory_, 0, kBytes));
  const Bytes host = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const Memcpy3D copy = ToBox(memory_, host);
  ASSERT_OK(CU(*cuda_, cuMemcpy3D_v2)(&copy));
  Bytes wanted(kBytes, 0);
  for (size_t i = 0; i < host.size(); ++i) {
    const size_t x = i % 2, y = i / 2 % 3, z = i / 6;
    wanted[(1 + z) * 48 + (2 + y) * 8 + 1 + x] = host[i];
  }
  EXPECT_EQ(Contents(), wanted);
}

TEST_F(CopyTest, ABoxIsReadFromItsPosition) {
  Bytes all(kBytes), host(12);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<unsigned char>(i);
  ASSERT_OK(CU(*cuda_, cuMemcpyHtoD_v2)(memory_, all.data(), all.size()));
  Stream stream = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream, 1));
  const Memcpy3D copy{.src_x = 3,
                      .src_z = 2,
                      .src_type = MemoryType::kDevice,
                      .src_device = memory_,
                      .src_pitch = 10,
                      .src_height = 5,
                      .dst_type = MemoryType::kHost,
                      .dst_host = host.data(),
                      .width = 3,
                      .height = 2,
                      .depth = 2};
  ASSERT_OK(CU(*cuda_, cuMemcpy3DAsync_v2)(&copy, stream));
  ASSERT_OK(CU(*cuda_, cuStreamSynchronize)(stream));
  EXPECT_EQ(host, (Bytes{103, 104, 105, 113, 114, 115, 153, 154, 155, 163, 164, 165}));
  EXPECT_OK(CU(*cuda_, cuStreamDestroy_v2)(stream));
}

TEST_F(CopyTest, ABoxOfAnArrayUsesTheRowsAndSlicesOfTheArray) {
  const Array3DDescriptor descriptor{
      .width = 4, .height = 3, .depth = 2, .format = kFormatUint8, .channels = 1};
  Array array = nullptr;
  ASSERT_OK(CU(*cuda_, cuArray3DCreate_v2)(&array, &descriptor));
  Bytes all(24), host(4);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<unsigned char>(i);
  Memcpy3D copy{.src_type = MemoryType::kHost,
                .src_host = all.data(),
                .dst_type = MemoryType::kArray,
                .dst_array = array,
                .width = 4,
                .height = 3,
                .depth = 2};
  ASSERT_OK(CU(*cuda_, cuMemcpy3D_v2)(&copy));
  copy = {.src_x = 1,
          .src_y = 1,
          .src_z = 1,
          .src_type = MemoryType::kArray,
          .src_array = array,
          .dst_type = MemoryType::kHost,
          .dst_host = host.data(),
          .width = 2,
          .height = 2,
          .depth = 1};
  ASSERT_OK(CU(*cuda_, cuMemcpy3D_v2)(&copy));
  EXPECT_EQ(host, (Bytes{17, 18, 21, 22}));
  copy.src_y = 2;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&copy), Result::kInvalidValue) << "beyond the slice";
  copy.src_y = 1;
  copy.depth = 2;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&copy), Result::kInvalidValue) << "beyond the array";
  EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
}

TEST_F(CopyTest, RefusesBoxesThatDoNotFit) {
  const Bytes host(12);
  Memcpy3D copy = ToBox(memory_, host);
  copy.dst_z = 84;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&copy), Result::kInvalidValue) << "beyond the memory";
  copy = ToBox(memory_, host);
  copy.dst_pitch = 1;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&copy), Result::kInvalidValue) << "rows overlap";
  copy = ToBox(memory_, host);
  copy.dst_height = 2;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&copy), Result::kInvalidValue) << "planes overlap";
  copy = ToBox(memory_, host);
  copy.dst_pitch = SIZE_MAX / 4;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&copy), Result::kInvalidValue) << "larger than any memory";
  copy = ToBox(memory_, host);
  copy.src_pitch = copy.src_height = size_t(1) << 32;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&copy), Result::kInvalidValue)
      << "the plane's size overflows";
  copy = ToBox(memory_, host);
  copy.src_level = 1;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&copy), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(nullptr), Result::kInvalidValue);
}

TEST_F(CopyTest, FillsRowsAndNotTheBytesBetweenThem) {
  ASSERT_OK(CU(*cuda_, cuMemsetD8_v2)(memory_, 0, kBytes));
  ASSERT_OK(CU(*cuda_, cuMemsetD2D16_v2)(memory_ + 2, 8, 0x0102, 2, 3));
  Bytes wanted(kBytes, 0);
  for (const size_t at : {2, 4, 10, 12, 18, 20}) {
    wanted[at] = 2;
    wanted[at + 1] = 1;
  }
  EXPECT_EQ(Contents(), wanted);
  ASSERT_OK(CU(*cuda_, cuMemsetD2D8Async)(memory_, 64, 9, 1, 2, nullptr));
  ASSERT_OK(CU(*cuda_, cuCtxSynchronize)());
  wanted[0] = wanted[64] = 9;
  EXPECT_EQ(Contents(), wanted);
  ASSERT_OK(CU(*cuda_, cuMemsetD2D32_v2)(memory_ + 8, 16, 0x01010101, 1, 1));
  for (size_t at = 8; at < 12; ++at) wanted[at] = 1;
  EXPECT_EQ(Contents(), wanted);
}

TEST_F(CopyTest, ALargeFillWithZeroReturnsItsPagesToTheHost) {
  constexpr uint64_t kBytes = 8 << 20, kPages = kBytes / 4096;
  DevicePtr pointer = 0;
  ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&pointer, kBytes));
  ASSERT_OK(CU(*cuda_, cuMemsetD8_v2)(pointer, 7, kBytes));
  ASSERT_OK(CU(*cuda_, cuMemsetD8_v2)(pointer + 100, 0, kBytes - 300));
  ASSERT_OK(CU(*cuda_, cuCtxSynchronize)());
  std::vector<unsigned char> resident(kPages);
  ASSERT_EQ(mincore(reinterpret_cast<void*>(pointer), kBytes, resident.data()), 0);
  EXPECT_EQ(std::count_if(resident.begin(), resident.end(), [](auto page) { return page & 1; }), 2);
  std::vector<unsigned char> bytes(kBytes);
  ASSERT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(bytes.data(), pointer, kBytes));
  EXPECT_EQ(std::count(bytes.begin(), bytes.begin() + 100, 7), 100);
  EXPECT_EQ(std::count(bytes.begin() + 100, bytes.end() - 200, 0), int64_t(kBytes - 300));
  EXPECT_EQ(std::count(bytes.end() - 200, bytes.end(), 7), 200);
  ASSERT_OK(CU(*cuda_, cuMemFree_v2)(pointer));
}

TEST_F(CopyTest, RefusesFillsThatDoNotFit) {
  EXPECT_OK(CU(*cuda_, cuMemsetD2D8_v2)(memory_, 64, 0, 64, 64));
  EXPECT_EQ(CU(*cuda_, cuMemsetD2D8_v2)(memory_ + 1, 64, 0, 64, 64), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemsetD2D8_v2)(memory_, 64, 0, 65, 2), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemsetD2D32_v2)(memory_, 66, 0, 4, 2), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemsetD2D8_v2)(memory_, SIZE_MAX / 2, 0, 8, 4), Result::kInvalidValue);
}

// The addresses decide where the memory is, so a range beyond an allocation is not host memory.
TEST_F(CopyTest, ARangeBeyondAnAllocationIsRefusedByEveryFunction) {
  constexpr size_t kHuge = size_t(1) << 40;
  const auto refused = Result::kInvalidValue;
  DevicePtr other = 0;
  ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&other, kHuge >> 18));
  Bytes host(64);
  const auto on_host = reinterpret_cast<DevicePtr>(host.data());
  EXPECT_EQ(CU(*cuda_, cuMemcpy)(other, memory_, kHuge), refused);
  EXPECT_EQ(CU(*cuda_, cuMemcpy)(other, on_host, kHuge), refused);
  EXPECT_EQ(CU(*cuda_, cuMemcpy)(on_host, other, kHuge), refused);
  EXPECT_EQ(CU(*cuda_, cuMemcpyAsync)(other, memory_, kHuge, nullptr), refused);
  EXPECT_EQ(CU(*cuda_, cuMemcpyAsync)(on_host, memory_, kHuge, nullptr), refused);
  EXPECT_EQ(CU(*cuda_, cuMemcpyPeer)(other, nullptr, memory_, nullptr, kHuge), refused);
  EXPECT_EQ(CU(*cuda_, cuMemcpyPeerAsync)(other, nullptr, memory_, nullptr, kHuge, nullptr),
            refused);
  EXPECT_EQ(CU(*cuda_, cuMemcpyHtoD_v2)(other, reinterpret_cast<void*>(memory_), kHuge), refused);
  Memcpy3D box{.src_type = MemoryType::kUnified,
               .src_device = memory_,
               .dst_type = MemoryType::kUnified,
               .dst_device = other,
               .width = kHuge,
               .height = 1,
               .depth = 1};
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&box), refused);
  // The product of the extents overflows to 0.
  box.width = kHuge, box.height = size_t(1) << 24;
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D_v2)(&box), refused);
  const Memcpy2D rows{.src_type = MemoryType::kUnified,
                      .src_device = memory_,
                      .src_pitch = kHuge,
                      .dst_type = MemoryType::kUnified,
                      .dst_device = other,
                      .width = 8,
                      .height = 2};
  EXPECT_EQ(CU(*cuda_, cuMemcpy2D_v2)(&rows), refused);
  // Mapped, but without access.
  DevicePtr reserved = 0;
  ASSERT_OK(CU(*cuda_, cuMemAddressReserve)(&reserved, 2 * kMiB, 0, 0, 0));
  EXPECT_EQ(CU(*cuda_, cuMemcpy)(reserved, memory_, 8), refused);
  EXPECT_OK(CU(*cuda_, cuMemAddressFree)(reserved, 2 * kMiB));
  EXPECT_OK(CU(*cuda_, cuMemcpy)(other, memory_, kBytes));
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(other));
}

// Programs of CUDA 3.1 and before, with addresses of 32 bits.
class NarrowCopyTest : public OneGpuTest {
 protected:
  void SetUp() override { ASSERT_OK(CU(*cuda_, cuMemAlloc)(&memory_, kBytes)); }
  void TearDown() override {
    EXPECT_OK(CU(*cuda_, cuMemFree)(memory_));
    OneGpuTest::TearDown();
  }
  Bytes Contents(size_t bytes) const {
    Bytes found(bytes);
    EXPECT_OK(CU(*cuda_, cuMemcpyDtoH)(found.data(), memory_, unsigned(bytes)));
    return found;
  }

  static constexpr unsigned kBytes = 4096;
  DevicePtrV1 memory_ = 0;
};

TEST_F(NarrowCopyTest, RowsAndPlanesAreCopied) {
  ASSERT_OK(CU(*cuda_, cuMemsetD8)(memory_, 0, kBytes));
  const Bytes host = {1, 2, 3, 4, 5, 6, 7, 8};
  const Memcpy2DV1 rows{.src_type = MemoryType::kHost,
                        .src_host = host.data(),
                        .src_pitch = 2,
                        .dst_x = 1,
                        .dst_y = 1,
                        .dst_type = MemoryType::kDevice,
                        .dst_device = memory_,
                        .dst_pitch = 4,
                        .width = 2,
                        .height = 2};
  ASSERT_OK(CU(*cuda_, cuMemcpy2D)(&rows));
  EXPECT_EQ(Contents(12), (Bytes{0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0}));
  Memcpy3DV1 box{.src_type = MemoryType::kHost,
                 .src_host = host.data(),
                 .dst_z = 1,
                 .dst_type = MemoryType::kDevice,
                 .dst_device = memory_,
                 .dst_pitch = 4,
                 .dst_height = 2,
                 .width = 4,
                 .height = 1,
                 .depth = 2};
  ASSERT_OK(CU(*cuda_, cuMemcpy3D)(&box));
  EXPECT_EQ(Contents(20), (Bytes{0, 0, 0, 0, 0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8}));
  box.dst_device = memory_ + (8u << 20);  // beyond the allocation
  EXPECT_EQ(CU(*cuda_, cuMemcpy3D)(&box), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemcpy2D)(nullptr), Result::kInvalidValue);
}

TEST_F(NarrowCopyTest, StreamsAndArraysAreCopied) {
  const Bytes host = {1, 2, 3, 4, 5, 6, 7, 8};
  const ArrayDescriptor shape{8, 0, kFormatUint8, 1};
  Array array = nullptr;
  Stream stream = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream, 1));
  ASSERT_OK(CU(*cuda_, cuArrayCreate_v2)(&array, &shape));
  ASSERT_OK(CU(*cuda_, cuMemcpyHtoDAsync)(memory_, host.data(), 8, stream));
  ASSERT_OK(CU(*cuda_, cuStreamSynchronize)(stream));
  EXPECT_EQ(Contents(8), host);
  Bytes back(4);
  ASSERT_OK(CU(*cuda_, cuMemcpyHtoA)(array, 2, host.data(), 4));
  ASSERT_OK(CU(*cuda_, cuMemcpyAtoH)(back.data(), array, 3, 3));
  EXPECT_EQ(back, (Bytes{2, 3, 4, 0}));
  EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
  EXPECT_OK(CU(*cuda_, cuStreamDestroy_v2)(stream));
}

TEST_F(NarrowCopyTest, TheRangeOfAnAddressIsFound) {
  DevicePtrV1 base = 0;
  unsigned bytes = 0;
  ASSERT_OK(CU(*cuda_, cuMemGetAddressRange)(&base, &bytes, memory_ + 5));
  EXPECT_EQ(base, memory_);
  EXPECT_GE(bytes, kBytes);
}

}  // namespace
}  // namespace tessera::cuda
