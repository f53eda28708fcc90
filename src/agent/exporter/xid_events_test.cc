// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/xid_events.h"

#include <gtest/gtest.h>

#include "src/agent/exporter/testing/samples.h"

namespace tessera::agent {
namespace {

using std::chrono::minutes;

class XidEventsTest : public ::testing::Test {
 protected:
  void Hold(const std::string& pod, const std::string& uuid, MilliGpu compute) {
    holdings_.containers.push_back(Held(pod, uuid, compute));
  }
  std::vector<ContainerEvent> OnXid(const std::string& uuid, uint64_t code) {
    return events_.OnXid(holdings_, uuid, code, now_);
  }

  Holdings holdings_;
  XidEvents events_;
  MonotonicTime now_{};
};

TEST_F(XidEventsTest, TheHolderOfTheGpuGetsAnEvent) {
  Hold("a", "GPU-0", kWholeGpu);
  Hold("b", "GPU-1", kWholeGpu);
  const auto events = OnXid("GPU-1", 31);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].holder.pod_name, "b");
  EXPECT_TRUE(events[0].event.warning);
  EXPECT_EQ(events[0].event.reason, "GPUXid");
  EXPECT_EQ(events[0].event.message,
            "GPU-1 of container main reported XID 31: GPU memory page fault; to do: restart the "
            "application");
}

TEST_F(XidEventsTest, EachPodOfASharedGpuGetsTheEvent) {
  Hold("a", "GPU-0", MilliGpu(300));
  Hold("b", "GPU-0", MilliGpu(300));
  Hold("", "GPU-0", MilliGpu(300));
  const auto events = OnXid("GPU-0", 4242);
  ASSERT_EQ(events.size(), 2u) << "the owner of the third is unknown";
  EXPECT_EQ(events[1].event.message,
            "GPU-0 of container main reported XID 4242 (3 containers share this GPU, and any of "
            "them may be the cause)");
}

TEST_F(XidEventsTest, ManyErrorsInAShortTimeAreOneEvent) {
  Hold("a", "GPU-0", kWholeGpu);
  EXPECT_EQ(OnXid("GPU-0", 31).size(), 1u);
  EXPECT_EQ(OnXid("GPU-0", 31).size(), 0u);
  EXPECT_EQ(OnXid("GPU-0", 43).size(), 1u) << "another XID";
  now_ += minutes(5);
  EXPECT_EQ(OnXid("GPU-0", 31).size(), 1u);
  EXPECT_EQ(OnXid("GPU-9", 31).size(), 0u) << "no container holds it";
}

}  // namespace
}  // namespace tessera::agent
