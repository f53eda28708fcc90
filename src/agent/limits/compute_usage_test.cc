// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/compute_usage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/limiter/region.h"

namespace tessera::agent {
namespace {

class ComputeUsageTest : public ::testing::Test {
 protected:
  ComputeUsageTest() {
    file_ = std::make_shared<const Fd>(::memfd_create("usage", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file_->get(), sizeof(limiter::Usage)), 0);
    void* memory = ::mmap(nullptr, sizeof(limiter::Usage), PROT_READ | PROT_WRITE, MAP_SHARED,
                          file_->get(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    usage_ = static_cast<limiter::Usage*>(memory);
  }
  ~ComputeUsageTest() override { ::munmap(usage_, sizeof(limiter::Usage)); }

  // Sets the GPU time of the process in this slot.
  void SetSlot(uint32_t gpu, uint32_t slot, int64_t metered) {
    limiter::ComputeUsage& usage = usage_->compute[gpu];
    usage.charge.slots = std::max(usage.charge.slots.load(), slot + 1);
    usage.slots[slot].last_written = 1;
    usage.slots[slot].metered = metered;
  }

  std::shared_ptr<const Fd> file_;
  limiter::Usage* usage_ = nullptr;
};

TEST_F(ComputeUsageTest, ReadsTheSlotsOfItsGpu) {
  SetSlot(2, 0, 5);
  SetSlot(2, 3, 7);
  SetSlot(1, 0, 100);
  usage_->compute[2].charge.charged = 20;
  usage_->compute[2].charge.waited = 9;
  ComputeUsageFile file(file_, 2);
  limiter::Arbiter::ContainerReading reading{.id = 4};
  for (int times = 0; times < 2; ++times) {
    const auto totals = file.Read(&reading);
    ASSERT_TRUE(totals.has_value());
    EXPECT_EQ(totals->gpu_time_ns, 12);
    EXPECT_EQ(totals->wait_time_ns, 9);
    EXPECT_EQ(reading.id, 4u);
    EXPECT_EQ(reading.charged, 20);
    ASSERT_EQ(reading.processes.size(), 2u);
    EXPECT_EQ(reading.processes[1].slot, 3u);
    EXPECT_EQ(reading.processes[1].metered, 7);
  }
}

TEST_F(ComputeUsageTest, ReadsManyProcesses) {
  for (uint32_t slot = 0; slot < 1000; ++slot) SetSlot(0, slot, 2);
  ComputeUsageFile file(file_, 0);
  limiter::Arbiter::ContainerReading reading;
  const auto totals = file.Read(&reading);
  ASSERT_TRUE(totals.has_value());
  EXPECT_EQ(totals->gpu_time_ns, 2000);
  EXPECT_EQ(reading.processes.size(), 1000u);
}

TEST_F(ComputeUsageTest, ReadsATruncatedFileAgainOnceItIsComplete) {
  SetSlot(0, 0, 5);
  ComputeUsageFile file(file_, 0);
  limiter::Arbiter::ContainerReading reading;
  ASSERT_TRUE(file.Read(&reading).has_value());
  ASSERT_EQ(::ftruncate(file_->get(), 100), 0);
  EXPECT_FALSE(file.Read(&reading).has_value());
  EXPECT_FALSE(file.Read(&reading).has_value());
  ASSERT_EQ(::ftruncate(file_->get(), sizeof(limiter::Usage)), 0);
  SetSlot(0, 1, 6);
  const auto totals = file.Read(&reading);
  ASSERT_TRUE(totals.has_value());
  EXPECT_EQ(totals->gpu_time_ns, 6);
}

TEST_F(ComputeUsageTest, ClampsTheNumbersOfAContainer) {
  SetSlot(0, 0, INT64_MAX);
  SetSlot(0, 1, INT64_MAX);
  SetSlot(0, 2, INT64_MIN);
  usage_->compute[0].charge.slots = UINT32_MAX;
  usage_->compute[0].charge.waited = INT64_MIN;
  ComputeUsageFile file(file_, 0);
  limiter::Arbiter::ContainerReading reading;
  const auto totals = file.Read(&reading);
  ASSERT_TRUE(totals.has_value());
  EXPECT_EQ(totals->gpu_time_ns, int64_t{1} << 51);
  EXPECT_EQ(totals->wait_time_ns, 0);
}

}  // namespace
}  // namespace tessera::agent
