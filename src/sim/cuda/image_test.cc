// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/image.h"

#include <gtest/gtest.h>

namespace tessera::cuda {
namespace {

constexpr int kCuda124 = 12040;

TEST(ImageTest, FindsEntriesAndTheirParameters) {
  Image image;
  ASSERT_EQ(ReadPtx(R"(
      // .entry notThis(
      .version 7.5
      .target sm_70, debug
      .address_size 64
      .func helper(.param .b32 x) { ret; }
      .visible .entry _Z5saxpyifPKfPf(.param .u32 p0, .param .f32 p1,
          .param .u64 .ptr .global .align 16 p2, .param .u64 p3) .maxntid 256, 1, 1 { ret; }
      /* .entry norThis */
      .entry packed(.param .u8 a, .param .align 8 .b8 b[12], .param .f64 c) { ret; }
      .entry empty() { ret; })", 75, kCuda124, &image), Result::kSuccess);
  ASSERT_EQ(image.entries.size(), 3u);
  const Entry* saxpy = image.Find("_Z5saxpyifPKfPf");
  ASSERT_NE(saxpy, nullptr);
  ASSERT_EQ(saxpy->parameters.size(), 4u);
  EXPECT_EQ(saxpy->parameters[2].offset, 8u);
  EXPECT_EQ(saxpy->parameters[3].offset, 16u);
  const Entry* packed = image.Find("packed");
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(packed->parameters[1].offset, 8u);
  EXPECT_EQ(packed->parameters[1].size, 12u);
  EXPECT_EQ(packed->parameters[2].offset, 24u);
  EXPECT_TRUE(image.Find("empty")->parameters.empty());
  EXPECT_EQ(image.Find("notThis"), nullptr);
}

TEST(ImageTest, RefusesWhatTheDriverWouldRefuse) {
  Image image;
  EXPECT_EQ(ReadImage("hello", 80, kCuda124, &image), Result::kInvalidImage);
  EXPECT_EQ(ReadImage("", 80, kCuda124, &image), Result::kInvalidImage);
  EXPECT_EQ(ReadImage(".version 8.0\n", 80, kCuda124, &image), Result::kInvalidPtx);
  EXPECT_EQ(ReadImage(".version 8.0\n.target sm_90\n", 80, kCuda124, &image), Result::kInvalidPtx);
  EXPECT_EQ(ReadImage(".version 8.5\n.target sm_50\n", 80, kCuda124, &image),
            Result::kUnsupportedPtxVersion);
  EXPECT_EQ(ReadImage(".version 8.4\n.target sm_50\n.entry x() {", 80, kCuda124, &image),
            Result::kInvalidPtx);
  EXPECT_EQ(ReadImage(nullptr, 80, kCuda124, &image), Result::kInvalidValue);
}

TEST(ImageTest, BareNamesOfMangledAndPlainOnes) {
  EXPECT_EQ(BareName("_Z9vectorAddPKfS0_Pfi"), "vectorAdd");
  EXPECT_EQ(BareName("vectorAdd"), "vectorAdd");
  EXPECT_EQ(BareName("_Z99x"), "_Z99x");
}

}  // namespace
}  // namespace tessera::cuda
