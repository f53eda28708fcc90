// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/usage_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ContainerUses OneUse() {
  return {{.holder = {Uid("uid"), "ml", "train", "main"},
           .uuid = "GPU-1",
           .compute = MilliGpu(300),
           .granted = GiB(8),
           .limit = GiB(4),
           .held = GiB(2),
           .unaccounted = GiB(1),
           .peak = GiB(3),
           .refused = 7,
           .processes = 2,
           .bypassing = 1}};
}

TEST(UsagePageTest, MetricsNameContainerAndGpu) {
  MetricsText text;
  WriteContainerUses(OneUse(), &text);
  const std::string page = text.Take();
  const std::string labels = R"({namespace="ml",pod="train",container="main",uuid="GPU-1"} )";
  EXPECT_THAT(page,
              HasSubstr("tessera_container_gpu_memory_limit_bytes" + labels + "4294967296\n"));
  EXPECT_THAT(page, HasSubstr("tessera_container_gpu_memory_used_bytes" + labels + "3221225472\n"));
  EXPECT_THAT(page, HasSubstr("tessera_container_gpu_allocations_refused_total" + labels + "7\n"));
  EXPECT_THAT(page, HasSubstr("tessera_container_gpu_processes_without_limiter" + labels + "1\n"));
  EXPECT_THAT(page, Not(HasSubstr("driver_bytes{"))) << "an unknown value is absent, not 0";
}

TEST(UsagePageTest, JsonHasExactBytes) {
  device::NodeInventory inventory;
  inventory.gpus.push_back({.uuid = "GPU-1", .index = 3});
  EXPECT_EQ(JsonOfUses("n1", OneUse(), inventory).Serialize(),
            R"({"node":"n1","containers":[{"namespace":"ml","pod":"train","container":"main",)"
            R"("uuid":"GPU-1","index":3,"limited":true,"milli":300,)"
            R"("refused":7,"processes":2,"without_limiter":1,"memory":{"granted":8589934592,)"
            R"("limit":4294967296,"used":3221225472,"unaccounted":1073741824,"peak":3221225472}}],)"
            R"("complete":true})");
}

TEST(UsagePageTest, AContainerThatIsNotLimitedHasOnlyItsGrant) {
  ContainerUses uses = OneUse();
  uses[0].limited = false;
  EXPECT_EQ(JsonOfUses("n1", uses, {}).Serialize(),
            R"({"node":"n1","containers":[{"namespace":"ml","pod":"train","container":"main",)"
            R"("uuid":"GPU-1","limited":false,"milli":300,"memory":{"granted":8589934592}}],)"
            R"("complete":true})");
  MetricsText text;
  WriteContainerUses(uses, &text);
  const std::string page = text.Take();
  EXPECT_THAT(page, HasSubstr("tessera_container_gpu_limited{namespace=\"ml\",pod=\"train\","
                              "container=\"main\",uuid=\"GPU-1\"} 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("limit_bytes{")));
}

TEST(UsagePageTest, ThePageIsIncompleteWhileAContainerIsUnread) {
  ContainerUses uses = OneUse();
  uses[0].is_read = false;
  EXPECT_EQ(JsonOfUses("n1", uses, {}).Serialize(),
            R"({"node":"n1","containers":[],"complete":false})");
  MetricsText text;
  WriteContainerUses(uses, &text);
  EXPECT_THAT(text.Take(), Not(HasSubstr("{namespace")));
}

TEST(UsagePageTest, TheClassIsShownWhereComputeIsLimited) {
  ContainerUses uses = OneUse();
  uses[0].compute_limit = MilliGpu(300);
  uses[0].compute_class = limiter::PriorityClass::kLow;
  EXPECT_THAT(JsonOfUses("n1", uses, {}).Serialize(), HasSubstr(R"("class":"low")"));
}

TEST(UsagePageTest, ALoweredLimitOfComputeIsAMetricBesideTheGrant) {
  ContainerUses uses = OneUse();
  uses[0].compute_limit = MilliGpu(200);
  MetricsText text;
  WriteContainerUses(uses, &text);
  const std::string page = text.Take();
  EXPECT_THAT(page, HasSubstr("compute_limit_ratio{namespace=\"ml\",pod=\"train\","
                              "container=\"main\",uuid=\"GPU-1\"} 0.2\n"));
  EXPECT_THAT(page, HasSubstr("compute_granted_ratio{namespace=\"ml\",pod=\"train\","
                              "container=\"main\",uuid=\"GPU-1\"} 0.3\n"));
}

TEST(UsagePageTest, TheShareRecordIsInMetricsAndJson) {
  ContainerUses uses = OneUse();
  uses[0].share_record = {.mean = 0.2904, .worst = -0.0316};
  EXPECT_THAT(JsonOfUses("n1", uses, {}).Serialize(),
              HasSubstr(R"("mean_milli":290,"worst_error_milli":-32,)"));
  MetricsText text;
  WriteContainerUses(uses, &text);
  EXPECT_THAT(text.Take(), HasSubstr("tessera_container_gpu_compute_share_error_ratio{namespace="
                                     "\"ml\",pod=\"train\",container=\"main\",uuid=\"GPU-1\"} "
                                     "-0.0316\n"));
}

TEST(UsagePageTest, UseByDriverAndByLimitersIsInMetricsAndJson) {
  ContainerUses uses = OneUse();
  uses[0].compute_limit = MilliGpu(300);
  uses[0].compute_use = ComputeUse{.used = 0.29};
  uses[0].utilization = 0.38;
  uses[0].share_record = {.mean = 0.29, .worst = 0, .mean_by_driver = 0.374};
  const std::string json = JsonOfUses("n1", uses, {}).Serialize();
  EXPECT_THAT(json, HasSubstr(R"("driver_milli":380,"used_milli":290,)"));
  EXPECT_THAT(json, HasSubstr(R"("mean_driver_milli":374,)"));
  MetricsText text;
  WriteContainerUses(uses, &text);
  EXPECT_THAT(text.Take(), HasSubstr("tessera_container_gpu_compute_driver_ratio{namespace="
                                     "\"ml\",pod=\"train\",container=\"main\",uuid=\"GPU-1\"} "
                                     "0.38\n"));
}

}  // namespace
}  // namespace tessera::agent
