// SPDX-License-Identifier: Apache-2.0
// Attributes of devices and streams, and occupancy.
#include <cstring>

#include "src/sim/cuda/one_gpu_test.h"

namespace tessera::cuda {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

class AttributesTest : public OneGpuTest {
 protected:
  static int Device(int attribute) {
    int value = -1;
    EXPECT_OK(CU(*cuda_, cuDeviceGetAttribute)(&value, attribute, 0));
    return value;
  }
};

// Programs read these attributes before they call the functions.
TEST_F(AttributesTest, ADeviceReportsTheFeaturesOfItsDriver) {
  EXPECT_EQ(Device(102), 1) << "virtual memory management";
  EXPECT_EQ(Device(103), 1) << "memory shared by file descriptors";
  EXPECT_EQ(Device(119), 1) << "pools shared by file descriptors";
  EXPECT_EQ(Device(120), 0) << "clusters, which an A100 does not have";
  EXPECT_EQ(Device(87), 2) << "single to double precision";
}

TEST(PrecisionTest, ATuringGpuIsSlowInDoublePrecision) {
  const sim::testing::SimNode node({.profile = "t4"});
  const CudaLibrary cuda(node.library("libcuda.so.1"));
  int ratio = 0;
  EXPECT_OK(CU(cuda, cuInit)(0));
  EXPECT_OK(CU(cuda, cuDeviceGetAttribute)(&ratio, 87, 0));
  EXPECT_EQ(ratio, 32);
}

TEST_F(AttributesTest, AttributesOfAStreamAreKeptAndCopied) {
  constexpr int kSynchronization = 3;
  Stream stream = nullptr, other = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamCreateWithPriority)(&stream, 1, -2));
  ASSERT_OK(CU(*cuda_, cuStreamCreate)(&other, 1));
  StreamAttribute set{}, got{};
  std::memset(&set, 5, sizeof(set));
  EXPECT_OK(CU(*cuda_, cuStreamSetAttribute)(stream, kSynchronization, &set));
  EXPECT_OK(CU(*cuda_, cuStreamGetAttribute)(other, kSynchronization, &got));
  EXPECT_EQ(got.value[0], 0);
  EXPECT_OK(CU(*cuda_, cuStreamCopyAttributes)(other, stream));
  EXPECT_OK(CU(*cuda_, cuStreamGetAttribute)(other, kSynchronization, &got));
  EXPECT_EQ(std::memcmp(&set, &got, sizeof(set)), 0);
  int priority = 0;
  EXPECT_OK(CU(*cuda_, cuStreamGetAttribute)(stream, kStreamPriority, &got));
  std::memcpy(&priority, &got, sizeof(priority));
  EXPECT_EQ(priority, -2);
  EXPECT_EQ(CU(*cuda_, cuStreamSetAttribute)(stream, kStreamPriority, &set), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuStreamSetAttribute)(stream, 99, &set), Result::kInvalidValue);
  Context context = nullptr, current = nullptr;
  void* green = &green;
  EXPECT_OK(CU(*cuda_, cuStreamGetCtx_v2)(stream, &context, &green));
  EXPECT_OK(CU(*cuda_, cuCtxGetCurrent)(&current));
  EXPECT_EQ(context, current);
  EXPECT_EQ(green, nullptr);
}

TEST_F(AttributesTest, BlocksOfAMultiprocessorShareItsMemory) {
  constexpr char kKernel[] = ".version 7.0\n.target sm_70\n.entry k() { ret; }\n";
  Module module = nullptr;
  Function function = nullptr;
  ASSERT_OK(CU(*cuda_, cuModuleLoadData)(&module, kKernel));
  ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&function, module, "k"));
  size_t bytes = 0;
  EXPECT_OK(CU(*cuda_, cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, function, 1, 256));
  EXPECT_EQ(bytes, 163u << 10) << "the maximum of one block";
  EXPECT_OK(CU(*cuda_, cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, function, 4, 256));
  EXPECT_EQ(bytes, 41u << 10);
  EXPECT_EQ(CU(*cuda_, cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, function, 0, 256),
            Result::kInvalidValue);
  LaunchAttribute cluster{.id = kLaunchClusterDimension};
  LaunchConfig config{.grid_x = 8,
                      .grid_y = 1,
                      .grid_z = 1,
                      .block_x = 256,
                      .block_y = 1,
                      .block_z = 1,
                      .attributes = &cluster,
                      .attribute_count = 0};
  int count = 0;
  EXPECT_OK(CU(*cuda_, cuOccupancyMaxActiveClusters)(&count, function, &config));
  EXPECT_EQ(count, 8 * 108);
  const unsigned extents[] = {2, 1, 1};
  std::memcpy(cluster.value, extents, sizeof(extents));
  config.attribute_count = 1;
  EXPECT_EQ(CU(*cuda_, cuOccupancyMaxActiveClusters)(&count, function, &config),
            Result::kNotSupported)
      << "an A100 has no clusters";
  EXPECT_OK(CU(*cuda_, cuOccupancyMaxPotentialClusterSize)(&count, function, &config));
  EXPECT_EQ(count, 1);
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(module));
}

}  // namespace
}  // namespace tessera::cuda
