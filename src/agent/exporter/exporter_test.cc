// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/log.h"
#include "src/gpu/testing/fake_nvml.h"

namespace tessera::agent {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class ExporterTest : public ::testing::Test {
 protected:
  ExporterTest() : quiet_([](std::string_view) {}) {
    loader_->driver = gpu::testing::FakeDriver::WithGpus(2);
    PageOptions options;
    options.counters = std::make_shared<const CounterSpecs>(*ParseCounters(
        "DCGM_FI_DEV_GPU_UTIL, gauge, u\nDCGM_FI_DEV_XID_ERRORS, gauge, x\n"
        "DCGM_EXP_XID_ERRORS_TOTAL, counter, t\nDCGM_EXP_XID_ERRORS_COUNT, gauge, c\n",
        "test"));
    Exporter::Sources sources;
    sources.loader = loader_;
    sources.caller = &caller_;
    sources.holdings = [this](const std::function<void(Holdings)>& then) { then(holdings_); };
    exporter_ =
        std::make_unique<Exporter>(&runner_, std::move(options), seconds(1), std::move(sources));
    exporter_->Start();
    runner_.RunUntilIdle();
  }
  const std::string& Uuid(int gpu) { return loader_->driver->gpus[gpu].uuid; }
  std::string OwnMetrics() {
    MetricsText text;
    exporter_->WriteOwnMetrics(&text);
    return text.Take();
  }

  const ScopedLogSinkForTest quiet_;
  FakeTaskRunner runner_;
  gpu::testing::FakeCaller caller_{&runner_};
  const std::shared_ptr<gpu::testing::FakeLoader> loader_ =
      std::make_shared<gpu::testing::FakeLoader>();
  Holdings holdings_;
  std::unique_ptr<Exporter> exporter_;
};

TEST_F(ExporterTest, SeriesHaveTheLabelsOfTheirPodWithinTwoRounds) {
  EXPECT_THAT(exporter_->text(), HasSubstr("DCGM_FI_DEV_GPU_UTIL{gpu=\"1\""));
  EXPECT_THAT(exporter_->text(), Not(HasSubstr("pod=")));
  holdings_.containers = {{.holder = {Uid("uid"), "ml", "train", "main"},
                           .shares = {{Uuid(1), kWholeGpu, GiB(80)}},
                           .container_id = ""}};
  runner_.AdvanceTimeAndRun(seconds(2));
  EXPECT_THAT(exporter_->text(),
              HasSubstr("container=\"main\",namespace=\"ml\",pod=\"train\"} 50"));
  holdings_.containers.clear();
  runner_.AdvanceTimeAndRun(seconds(2));
  EXPECT_THAT(exporter_->text(), Not(HasSubstr("pod=")));
}

TEST_F(ExporterTest, TheUseOfAGpuIsSplitBetweenItsContainers) {
  ContainerUses uses = {{.holder = {Uid("uid"), "ml", "a", "main"}, .uuid = Uuid(0)}};
  uses[0].utilization = 0.2;
  exporter_->SetContainerUses(std::make_shared<const ContainerUses>(uses));
  runner_.AdvanceTimeAndRun(seconds(1));
  EXPECT_THAT(exporter_->text(), HasSubstr("pod=\"a\"} 20\n"));
  EXPECT_THAT(exporter_->text(), HasSubstr("modelName=\"NVIDIA Fake\"} 30\n"));
}

TEST_F(ExporterTest, TimeAndEnergyOfContainersAreMetered) {
  ContainerUses uses = {{.holder = {Uid("uid"), "ml", "a", "main"}, .uuid = Uuid(0)}};
  uses[0].utilization = 0.2;
  holdings_.containers = {
      {.holder = uses[0].holder, .shares = {{Uuid(0), MilliGpu(300), GiB(1)}}, .container_id = ""}};
  loader_->driver->gpus[0].telemetry.fields = {{83, 1000}};
  runner_.AdvanceTimeAndRun(seconds(2));
  exporter_->SetContainerUses(std::make_shared<const ContainerUses>(uses));
  loader_->driver->gpus[0].telemetry.fields = {{83, 6000}};
  runner_.AdvanceTimeAndRun(seconds(1));
  const std::string labels =
      "{namespace=\"ml\",pod=\"a\",container=\"main\",uuid=\"" + Uuid(0) + "\"}";
  EXPECT_THAT(OwnMetrics(), HasSubstr("gpu_energy_joules_total" + labels + " 1\n"));
  EXPECT_THAT(OwnMetrics(), HasSubstr("gpu_energy_joules_total{uuid=\"" + Uuid(0) + "\"} 4\n"));
  EXPECT_THAT(OwnMetrics(), HasSubstr("gpu_allocated_seconds_total" + labels + " 2\n"));
  EXPECT_THAT(OwnMetrics(), HasSubstr("gpu_idle_seconds_total" + labels + " 0\n"));
  EXPECT_THAT(OwnMetrics(), Not(HasSubstr("energy_joules_total{uuid=\"" + Uuid(1))))
      << "this GPU has no energy counter";
}

TEST_F(ExporterTest, AnXidIsExportedAtOnceAndNotCountedAfterTheWindow) {
  exporter_->OnXid(Uuid(1), 79);
  EXPECT_THAT(exporter_->text(), HasSubstr("err_code=\"79\""));
  EXPECT_THAT(exporter_->text(), HasSubstr("window_size_in_ms=\"300000\",xid=\"79\"} 1\n"));
  exporter_->OnXid("", 79);
  runner_.AdvanceTimeAndRun(minutes(5));
  EXPECT_THAT(exporter_->text(), HasSubstr("window_size_in_ms=\"300000\",xid=\"79\"} 0\n"));
  EXPECT_THAT(exporter_->text(), HasSubstr("DCGM_EXP_XID_ERRORS_TOTAL{gpu=\"1\""));
  EXPECT_THAT(exporter_->text(), HasSubstr("xid=\"79\"} 1\n")) << "the total stays";
}

TEST_F(ExporterTest, AGpuThatDoesNotAnswerHasASampleAgeButNoSeries) {
  loader_->driver->faults[{gpu::NvmlCall::kUtilization, 0}] = {};
  runner_.AdvanceTimeAndRun(seconds(10));
  EXPECT_THAT(exporter_->text(), Not(HasSubstr("gpu=\"0\"")));
  EXPECT_THAT(exporter_->text(), HasSubstr("DCGM_FI_DEV_GPU_UTIL{gpu=\"1\""));
  EXPECT_THAT(OwnMetrics(), HasSubstr("tessera_exporter_sample_age_seconds{gpu=\"0\"} 10\n"));
  EXPECT_THAT(OwnMetrics(), HasSubstr("tessera_exporter_sample_age_seconds{gpu=\"1\"} 0\n"));
  EXPECT_THAT(OwnMetrics(), HasSubstr("tessera_exporter_late_samples_total{gpu=\"0\"} 1\n"));
}

}  // namespace
}  // namespace tessera::agent
