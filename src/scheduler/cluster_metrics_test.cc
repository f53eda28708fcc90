// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/cluster_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/ledger/testing/objects.h"
#include "src/scheduler/testing/scheduler_harness.h"

namespace tessera::scheduler {
namespace {

using ledger::testing::GpuNode;
using ledger::testing::GpuPod;
using ledger::testing::Whole;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class ClusterMetricsTest : public ::testing::Test {
 protected:
  kube::PodObject Created(kube::PodObject pod, Duration age) {
    pod.meta.created = d_.clock.WallNow() - age;
    return pod;
  }
  void Run(const kube::PodObject& pod, const std::string& node) {
    d_.AddPod(pod);
    ASSERT_TRUE(d_.BindSucceeds(pod, node)) << pod.meta.name;
    d_.Feed(pod);
  }
  std::string Page() {
    return MetricsPage(d_.metrics, {.ledger = d_.ledger.get(),
                                    .wait_reasons = &d_.extender->wait_reasons(),
                                    .now = d_.clock.WallNow()});
  }

  testing::SchedulerHarness d_;
};

TEST_F(ClusterMetricsTest, CountsAllocatedDevicesByDialect) {
  d_.AddNode(GpuNode("n1", 4));
  Run(Whole("whole", 2), "n1");
  for (const char* name : {"a", "b"}) {
    Run(GpuPod(name, {{names::kResourceGpuMem, "20"}}), "n1");
  }
  Run(GpuPod("c", {{names::kResourceVcudaCore, "30"}, {names::kResourceVcudaMemory, "16"}}), "n1");
  const std::string page = Page();
  for (const char* line : {"allocated_devices{dialect=\"nvidia.com/gpu\"} 2\n",
                           "allocated_gpus{dialect=\"nvidia.com/gpu\"} 2\n",
                           "allocated_devices{dialect=\"aliyun.com/gpu-mem\"} 1\n",
                           "allocated_gpus{dialect=\"aliyun.com/gpu-mem\"} 0.5\n",
                           "allocated_devices{dialect=\"tencent.com/vcuda-core\"} 1\n",
                           "allocated_gpus{dialect=\"tencent.com/vcuda-core\"} 0.3\n",
                           "allocated_devices{dialect=\"nvidia.com/mig-*\"} 0\n"}) {
    EXPECT_THAT(page, HasSubstr(std::string("tessera_scheduler_") + line));
  }
}

TEST_F(ClusterMetricsTest, FragmentationIsThePartThatTypicalPodsCannotUse) {
  d_.AddNode(GpuNode("n1", 2));
  d_.AddNode(GpuNode("n2", 2));
  EXPECT_EQ(FragmentationOf(*d_.ledger), 0) << "without pods no demand is typical";
  Run(Whole("two", 2), "n1");
  EXPECT_EQ(FragmentationOf(*d_.ledger), 0) << "another pod of two GPUs fits";
  Run(Whole("one", 1), "n2");
  EXPECT_DOUBLE_EQ(FragmentationOf(*d_.ledger), 0.5) << "one of the two pods cannot use the rest";
  Run(Whole("last", 1), "n2");
  EXPECT_EQ(FragmentationOf(*d_.ledger), 0) << "nothing is free";
}

TEST_F(ClusterMetricsTest, ShowsTheUseAndTheLimitOfEachQuota) {
  d_.AddNode(GpuNode("n1", 4));
  d_.ledger->SetQuota(placement::ParseQuota(R"({"ns":{"quota":{"A100":3}},"b":{}})").value());
  Run(Whole("whole", 2), "n1");
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("quota_limit_gpus{namespace=\"ns\",model=\"A100\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("quota_used_gpus{namespace=\"ns\",model=\"A100\"} 2\n"));
  EXPECT_THAT(page, Not(HasSubstr("namespace=\"b\""))) << "namespace b has no limit";
}

TEST_F(ClusterMetricsTest, CountsWaitingPodsByReasonSizeAndAge) {
  d_.AddNode(GpuNode("n1", 2));
  Run(Whole("whole", 2), "n1");
  for (const auto& [name, gpus, age] :
       {std::tuple("a", 1, Duration(minutes(2))), {"b", 2, hours(2)}, {"c", 2, seconds(5)}}) {
    EXPECT_TRUE(d_.Filter(Created(Whole(name, gpus), age)).fitting.empty());
  }
  EXPECT_TRUE(d_.Filter(Whole("d", 4)).fitting.empty());
  d_.AddPod(Created(GpuPod("e", {{names::kResourceGpuMem, "20"}}), minutes(20)));
  d_.AddPod(Created(GpuPod("f", {{names::kResourceGpuMem, "no"}}), minutes(1)));
  kube::PodObject deleted = Whole("deleted");
  deleted.meta.deleting = true;
  d_.AddPod(deleted);
  const std::string page = Page();
  for (const char* line :
       {"waiting_pods{reason=\"busy\",size=\"1\"} 1\n",
        "waiting_pods{reason=\"busy\",size=\"2\"} 2\n",
        "waiting_pods{reason=\"too-few\",size=\"4\"} 1\n",
        "waiting_pods{reason=\"not-tried\",size=\"share\"} 1\n",
        "waiting_pods{reason=\"invalid\",size=\"unknown\"} 1\n",
        "oldest_waiting_pod_seconds{reason=\"busy\"} 7200\n",
        "oldest_waiting_pod_seconds{reason=\"not-tried\"} 1200\n",
        "oldest_waiting_pod_seconds{reason=\"too-few\"} 0\n",
        "waiting_pods_by_age{reason=\"busy\",older_than_seconds=\"60\"} 2\n",
        "waiting_pods_by_age{reason=\"busy\",older_than_seconds=\"600\"} 1\n",
        "waiting_pods_by_age{reason=\"busy\",older_than_seconds=\"86400\"} 0\n"}) {
    EXPECT_THAT(page, HasSubstr(std::string("tessera_scheduler_") + line));
  }
  EXPECT_THAT(page, Not(HasSubstr("reason=\"not-tried\",size=\"1\"")))
      << "the pod is being deleted";
}

TEST_F(ClusterMetricsTest, ABoundPodHasWaitedSinceItsCreation) {
  d_.AddNode(GpuNode("n1", 2));
  const kube::PodObject pod = Created(Whole("a"), seconds(20));
  d_.AddPod(pod);
  EXPECT_THAT(Page(), HasSubstr("waiting_pods{reason=\"not-tried\",size=\"1\"} 1\n"));
  ASSERT_EQ(d_.Choose(pod), "n1");
  EXPECT_THAT(Page(), Not(HasSubstr("waiting_pods{"))) << "the pod's GPUs are held";
  ASSERT_TRUE(d_.BindAsKubeScheduler(pod, "n1")->ok());
  d_.Feed(pod);
  EXPECT_THAT(Page(), HasSubstr("pod_wait_seconds_bucket{le=\"10\"} 0\n"));
  EXPECT_THAT(Page(), HasSubstr("pod_wait_seconds_bucket{le=\"30\"} 1\n"));
  EXPECT_THAT(Page(), HasSubstr("pod_wait_seconds_sum 20\n"));
  EXPECT_THAT(Page(), Not(HasSubstr("waiting_pods{")));
}

TEST_F(ClusterMetricsTest, RequestsAreGroupedBySize) {
  const auto size = [](std::map<std::string_view, std::string> limits) {
    return SizeOf(*ledger::PodRequestOf(GpuPod("a", limits), {})->devices);
  };
  EXPECT_EQ(size({{names::kResourceGpu, "1"}}), "1");
  EXPECT_EQ(size({{names::kResourceGpu, "8"}}), "8");
  EXPECT_EQ(size({{names::kResourceGpu, "3"}}), "other");
  EXPECT_EQ(size({{names::kResourceGpu, "16"}}), "other");
  EXPECT_EQ(size({{names::kResourceVcudaCore, "200"}}), "2");
  EXPECT_EQ(size({{names::kResourceGpuMem, "8"}}), "share");
  EXPECT_EQ(size({{"nvidia.com/mig-1g.10gb", "2"}}), "slice");
}

}  // namespace
}  // namespace tessera::scheduler
