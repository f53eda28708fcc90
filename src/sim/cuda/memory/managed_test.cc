// SPDX-License-Identifier: Apache-2.0
// Advice about managed memory and its attributes; access to pools.
#include "src/sim/cuda/one_gpu_test.h"

namespace tessera::cuda {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

constexpr int kHostLocation = -1, kNoLocation = -2;

class ManagedTest : public OneGpuTest {
 protected:
  void SetUp() override {
    ASSERT_OK(CU(*cuda_, cuMemAllocManaged)(&managed_, kMiB, 1));
    ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&other_, kMiB));
  }
  void TearDown() override {
    EXPECT_OK(CU(*cuda_, cuMemFree_v2)(managed_));
    EXPECT_OK(CU(*cuda_, cuMemFree_v2)(other_));
    OneGpuTest::TearDown();
  }
  int Attribute(int attribute) const {
    int value = 99;
    EXPECT_OK(CU(*cuda_, cuMemRangeGetAttribute)(&value, sizeof(value), attribute, managed_, kMiB));
    return value;
  }

  static constexpr int kReadMostly = 1, kPreferred = 2, kAccessedBy = 3, kLastPrefetch = 4,
                       kPreferredType = 5;
  DevicePtr managed_ = 0, other_ = 0;
};

TEST_F(ManagedTest, AdviceHoldsUntilItIsRevoked) {
  EXPECT_EQ(Attribute(kReadMostly), 0);
  EXPECT_EQ(Attribute(kPreferred), kNoLocation);
  EXPECT_EQ(Attribute(kPreferredType), 0);
  ASSERT_OK(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 1, 0));
  ASSERT_OK(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 3, 0));
  EXPECT_EQ(Attribute(kReadMostly), 1);
  EXPECT_EQ(Attribute(kPreferred), 0);
  EXPECT_EQ(Attribute(kPreferredType), int(kLocationDevice));
  ASSERT_OK(CU(*cuda_, cuMemAdvise_v2)(managed_, kMiB, 3, {kLocationHost, 0}));
  EXPECT_EQ(Attribute(kPreferred), kHostLocation);
  ASSERT_OK(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 4, 0));
  ASSERT_OK(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 2, 0));
  EXPECT_EQ(Attribute(kReadMostly), 0);
  EXPECT_EQ(Attribute(kPreferred), kNoLocation);
}

TEST_F(ManagedTest, AccessingLocationsAreListed) {
  ASSERT_OK(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 5, 0));
  ASSERT_OK(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 5, kHostLocation));
  int locations[3] = {99, 99, 99};
  ASSERT_OK(CU(*cuda_, cuMemRangeGetAttribute)(locations, sizeof(locations), kAccessedBy, managed_,
                                               kMiB));
  EXPECT_EQ(locations[0], kHostLocation);
  EXPECT_EQ(locations[1], 0);
  EXPECT_EQ(locations[2], kNoLocation);
  ASSERT_OK(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 6, kHostLocation));
  EXPECT_EQ(Attribute(kAccessedBy), 0);
}

TEST_F(ManagedTest, TheLastPrefetchIsAnAttribute) {
  ASSERT_OK(CU(*cuda_, cuMemPrefetchAsync)(managed_, kMiB, 0, nullptr));
  EXPECT_EQ(Attribute(kLastPrefetch), 0);
  ASSERT_OK(CU(*cuda_, cuMemPrefetchAsync_v2)(managed_, kMiB, {kLocationHost, 0}, 0, nullptr));
  void* data[2] = {};
  int read_mostly = 99, prefetched = 99, attributes[] = {kReadMostly, kLastPrefetch};
  size_t sizes[] = {sizeof(int), sizeof(int)};
  data[0] = &read_mostly;
  data[1] = &prefetched;
  ASSERT_OK(CU(*cuda_, cuMemRangeGetAttributes)(data, sizes, attributes, 2, managed_, kMiB));
  EXPECT_EQ(read_mostly, 0);
  EXPECT_EQ(prefetched, kHostLocation);
}

TEST_F(ManagedTest, OtherMemoryAndInvalidLocationsAreRefused) {
  int value = 0;
  EXPECT_EQ(CU(*cuda_, cuMemAdvise)(other_, kMiB, 1, 0), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemAdvise)(managed_, 2 * kMiB, 1, 0), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 3, 7), Result::kInvalidDevice);
  EXPECT_EQ(CU(*cuda_, cuMemAdvise)(managed_, kMiB, 9, 0), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemPrefetchAsync)(managed_, kMiB, 7, nullptr), Result::kInvalidDevice);
  EXPECT_EQ(Attribute(kLastPrefetch), kNoLocation) << "a refused prefetch changes nothing";
  EXPECT_EQ(CU(*cuda_, cuMemPrefetchAsync)(other_, kMiB, 0, nullptr), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemRangeGetAttribute)(&value, 1, kReadMostly, managed_, kMiB),
            Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemRangeGetAttribute)(&value, 4, 9, managed_, kMiB),
            Result::kInvalidValue);
}

TEST_F(ManagedTest, OnlyWholeManagedMemoryIsAttachedToAStream) {
  EXPECT_OK(CU(*cuda_, cuStreamAttachMemAsync)(nullptr, managed_, 0, 1));
  EXPECT_OK(CU(*cuda_, cuStreamAttachMemAsync)(nullptr, managed_, kMiB, 4));
  EXPECT_EQ(CU(*cuda_, cuStreamAttachMemAsync)(nullptr, managed_, 4096, 4), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuStreamAttachMemAsync)(nullptr, managed_, 0, 3), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuStreamAttachMemAsync)(nullptr, other_, 0, 1), Result::kInvalidValue);
}

TEST_F(ManagedTest, TheDeviceOfAPoolAlwaysHasAccess) {
  MemPool pool = nullptr;
  unsigned flags = 0;
  const MemLocation here{kLocationDevice, 0};
  ASSERT_OK(CU(*cuda_, cuDeviceGetMemPool)(&pool, 0));
  EXPECT_OK(CU(*cuda_, cuMemPoolGetAccess)(&flags, pool, &here));
  EXPECT_EQ(flags, kAccessReadWrite);
  MemAccess access{here, kAccessReadWrite};
  EXPECT_OK(CU(*cuda_, cuMemPoolSetAccess)(pool, &access, 1));
  access.flags = kAccessNone;
  EXPECT_EQ(CU(*cuda_, cuMemPoolSetAccess)(pool, &access, 1), Result::kInvalidValue);
  access = {{kLocationDevice, 5}, kAccessReadWrite};
  EXPECT_EQ(CU(*cuda_, cuMemPoolSetAccess)(pool, &access, 1), Result::kInvalidDevice);
}

TEST_F(ManagedTest, ThePoolOfADeviceIsFoundByItsLocation) {
  const MemLocation here{kLocationDevice, 0}, host{kLocationHost, 0};
  constexpr int kPinned = 1;
  MemPool pool = nullptr, by_location = nullptr, created = nullptr;
  ASSERT_OK(CU(*cuda_, cuDeviceGetMemPool)(&pool, 0));
  EXPECT_OK(CU(*cuda_, cuMemGetMemPool)(&by_location, &here, kPinned));
  EXPECT_EQ(by_location, pool);
  EXPECT_EQ(CU(*cuda_, cuMemGetMemPool)(&by_location, &host, kPinned), Result::kNotSupported);
  const MemPoolProperties properties{.alloc_type = 1, .location = here};
  ASSERT_OK(CU(*cuda_, cuMemPoolCreate)(&created, &properties));
  EXPECT_OK(CU(*cuda_, cuMemSetMemPool)(&here, kPinned, created));
  EXPECT_OK(CU(*cuda_, cuDeviceGetMemPool)(&by_location, 0));
  EXPECT_EQ(by_location, created);
  EXPECT_OK(CU(*cuda_, cuMemGetDefaultMemPool)(&by_location, &here, kPinned));
  EXPECT_EQ(by_location, pool);
  EXPECT_OK(CU(*cuda_, cuMemPoolDestroy)(created));
}

}  // namespace
}  // namespace tessera::cuda
