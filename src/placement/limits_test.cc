// SPDX-License-Identifier: Apache-2.0
// Demands, picks, shapes and clusters at their limits.
#include <gtest/gtest.h>

#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/fit.h"
#include "src/placement/policy.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;
using testing::MakeNode;
using testing::PickOf;

TEST(DemandTest, ValuesAtTheLimitsAreAllowed) {
  Demand demand;
  demand.gpu_demands.assign(kMaxGpuDemands, {.count = 4, .milli = kWholeGpu});
  for (GpuId gpu = 1; gpu <= kMaxFilterGpus; ++gpu) demand.gpu_filter.push_back(gpu);
  EXPECT_TRUE(Validate(demand).ok());
  demand.gpu_filter.push_back(kMaxFilterGpus + 1);
  EXPECT_FALSE(Validate(demand).ok());
  demand.gpu_filter.clear();
  demand.gpu_demands[15].count = 5;
  EXPECT_EQ(Validate(demand).message(), "invalid request of 65 GPUs: want 1 to 64");
  demand.gpu_demands = {{.count = 1}, {.count = 64}, {.count = 1}};
  EXPECT_EQ(Validate(demand).message(), "invalid request of 65 GPUs: want 1 to 64");
  demand.gpu_demands = {{.count = 64}, {.count = 1}};
  EXPECT_EQ(Validate(demand).message(), "invalid request of 65 GPUs: want 1 to 64");
}

TEST(DemandTest, AmountsThatNoNodeHasAreRejected) {
  Demand demand{.cpu_milli = kMaxRequestedCpuMilli, .memory = kMaxRequestedMemory};
  demand.gpu_demands = {{.milli = kWholeGpu, .bytes = kMaxRequestedMemory}};
  EXPECT_TRUE(Validate(demand).ok());
  demand.cpu_milli += 1;
  EXPECT_EQ(Validate(demand).message(),
            "invalid request of 1099511627777 thousandths of CPU: want 0 to 1099511627776");
  demand.cpu_milli = 0;
  demand.memory += Bytes(1);
  EXPECT_EQ(Validate(demand).message(),
            "invalid request of 1125899906842625 bytes of memory: want 0 to 1125899906842624");
  demand.memory = Bytes(0);
  demand.gpu_demands[0].bytes += Bytes(1);
  EXPECT_FALSE(Validate(demand).ok());
}

TEST(FitTest, AnErrorNamesThePickedGpuThatTheNodeLacks) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(MakeNode("a", 4));
  EXPECT_EQ(CheckPick(cluster.node(node), MakeDemand(1, 1000), PickOf(1 << 5)).message(),
            "GPU 5 picked on a node with 4 GPUs");
}

TEST(FitTest, AnUnschedulableNodeFitsNoPick) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 4);
  spec.schedulable = false;
  const NodeId node = *cluster.AddNode(spec);
  EXPECT_EQ(CheckPick(cluster.node(node), MakeDemand(1, 1000), PickOf(1)).message(),
            "the node is not schedulable");
}

// A chunk holds 64 nodes: no policy may read past the last node.
TEST(PoliciesTest, AllAnswerForAFullChunkOfNodes) {
  Cluster cluster;
  for (int i = 0; i < 64; ++i) (void)*cluster.AddNode(MakeNode(fmt::format("n{}", i), 1));
  const ShapeId shape = *cluster.Intern(MakeDemand(1, 1000));
  for (const PolicyInfo& info : Policies()) {
    const auto policy = *MakePolicy(info.name, cluster, {});
    EXPECT_EQ(policy->Scores(shape).size(), 64u) << info.name;
    EXPECT_TRUE(policy->Choose(shape)) << info.name;
    for (int i = 0; i < 8; ++i) policy->OnArrival(shape);
  }
}

TEST(ShapesTest, IdsOfDemandsThatNoPodHasAreReused) {
  Cluster cluster;
  (void)*cluster.AddNode(MakeNode("a", 1));
  const auto policy = *MakePolicy("BestFit", cluster, {});
  const ShapeId fits = *cluster.Intern(MakeDemand(1, 1000));
  EXPECT_NE(policy->Scores(fits)[0], kUnfit);
  ShapeId again = fits + 1;
  for (int i = 0; again != fits && i <= 5000; ++i)
    again = *cluster.Intern(MakeDemand(2, 500, MiB(i)));
  ASSERT_EQ(again, fits);
  EXPECT_EQ(cluster.shapes().size(), Shapes::kIdleShapes);
  EXPECT_EQ(policy->Scores(again)[0], kUnfit)
      << "the cached scores are those of the earlier demand with this id";
}

}  // namespace
}  // namespace tessera::placement
