// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/cli/testing/fake_cluster.h"

namespace tessera::cli {
namespace {

using testing::FakeCluster;
using testing::PodIn;

class InspectTest : public ::testing::Test {
 protected:
  InspectTest() { FillSample(cluster_); }
  std::string Inspect(InspectOptions options = {}) {
    return InspectGpushare(cluster_.view(), options).value();
  }
  FakeCluster cluster_;
};

TEST_F(InspectTest, TheSummaryHasTheColumnsAndFooterOfGpushare) {
  EXPECT_EQ(
      Inspect(),
      R"(NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU2(Allocated/Total)  GPU3(Allocated/Total)  GPU Memory(GiB)
big   10.0.0.1   80/80                  5/80                   11/80                  0/80                   96/320
mini  unknown    0/16                   0/0                    0/0                    0/0                    0/16
old   10.0.0.2   0/16                   0/16                   0/0                    0/0                    0/32
--------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
96/368 (26%)  
)");
}

TEST_F(InspectTest, DetailsListPodsByGpu) {
  EXPECT_EQ(Inspect({.details = true, .node = "big"}), R"(
NAME:       big
IPADDRESS:  10.0.0.1

NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  GPU2(Allocated)  GPU3(Allocated)  
binpack-1    default    0                0                8                0                
nginx        default    0                5                0                0                
train        ml         80               0                0                0                
binpack-2    web        0                0                3                0                
Allocated :  96 (30%)   
Total :      320        
------------------------------------------------------------------------------------------------------


Allocated/Total GPU Memory In Cluster:  96/320 (30%)  
)");
}

TEST_F(InspectTest, PodWithUnknownGpusIsPending) {
  kube::PodObject stray = PodIn("default", "stray", {{names::kResourceGpuMem, "2"}});
  stray.node_name = "mini";
  cluster_.Add(stray);
  EXPECT_EQ(Inspect({.node = "mini"}),
            R"(NAME  IPADDRESS  GPU0(Allocated/Total)  PENDING(Allocated)  GPU Memory(GiB)
mini  unknown    0/16                   2                   2/16
---------------------------------------------
Allocated/Total GPU Memory In Cluster:
2/16 (12%)  
)");
  EXPECT_EQ(Inspect({.details = true, .node = "mini"}), R"(
NAME:       mini
IPADDRESS:  unknown

NAME         NAMESPACE  GPU0(Allocated)  Pending(Allocated)  
stray        default    0                2                   
Allocated :  2 (12%)    
Total :      16         
-----------------------------


Allocated/Total GPU Memory In Cluster:  2/16 (12%)  
)");
}

TEST_F(InspectTest, ShowsTheSizeOfEachGpu) {
  cluster_.AddChanged(ledger::testing::GpuNode("mixed", 2), 1,
                      [](device::Gpu& gpu) { gpu.memory = MiB(15109); });
  EXPECT_NE(Inspect({.node = "mixed"}).find("0/80                   0/14 "), std::string::npos)
      << Inspect({.node = "mixed"});
}

TEST(InspectUnitTest, TheUnitIsMibIfANodeOffersMoreUnitsThanItHasGib) {
  FakeCluster cluster;
  kube::NodeObject node = ledger::testing::GpuNode("h200", 1, "141Gi");
  const auto unit_if_offered = [&](int64_t units) {
    node.allocatable[std::string(names::kResourceGpuMem)] = std::to_string(units);
    cluster.Add(node);
    return cluster.ledger().OfferedMemoryUnit();
  };
  cluster.Add(node);
  EXPECT_EQ(cluster.ledger().OfferedMemoryUnit(), device::MemoryUnit::kGiB);
  EXPECT_EQ(unit_if_offered(141), device::MemoryUnit::kGiB);
  EXPECT_EQ(unit_if_offered(141 * 1024), device::MemoryUnit::kMiB);
}

}  // namespace
}  // namespace tessera::cli
