// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ExporterPageTest : public ::testing::Test {
 protected:
  void SetCounters(std::string_view counters) {
    options_.counters = std::make_shared<const CounterSpecs>(*ParseCounters(counters, "test"));
    for (auto& gpu : gpus_) {
      gpu.numbers.resize(options_.counters->size());
      gpu.texts.resize(options_.counters->size());
    }
  }
  void AddGpu(int index) {
    gpus_.push_back({.index = index,
                     .uuid = "GPU-" + std::to_string(index),
                     .model = "NVIDIA A100",
                     .pci_bus_id = "00000000:07:00.0"});
  }
  std::string Render() {
    std::vector<std::shared_ptr<const GpuSample>> samples;
    for (const GpuSample& gpu : gpus_) samples.push_back(std::make_shared<GpuSample>(gpu));
    return RenderPage(options_, samples, holders_, xids_);
  }

  PageOptions options_{.hostname = "n1"};
  std::vector<GpuSample> gpus_;
  HoldersByUuid holders_;
  XidsByUuid xids_;
};

constexpr std::string_view kGpu0Labels =
    R"(gpu="0",UUID="GPU-0",pci_bus_id="00000000:07:00.0",device="nvidia0",)"
    R"(modelName="NVIDIA A100")";

TEST_F(ExporterPageTest, IsWrittenAsDcgmExporterWritesIt) {
  AddGpu(0);
  AddGpu(1);
  SetCounters(
      "DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n"
      "DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).\nDCGM_FI_DEV_ENC_UTIL, gauge, e\n");
  gpus_[0].texts[0] = "550.163.01";
  gpus_[0].numbers = {{}, 41, 62.123, {}};
  gpus_[1].numbers = {{}, 42, {}, {}};
  holders_["GPU-1"].sole_holder = ContainerName{"ml", "train", "main"};
  EXPECT_EQ(Render(),
            "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n"
            "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
            "DCGM_FI_DEV_GPU_TEMP{" +
                std::string(kGpu0Labels) +
                R"(,hostname="n1",DCGM_FI_DRIVER_VERSION="550.163.01"} 41)" + "\n" +
                R"(DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-1",pci_bus_id="00000000:07:00.0",)" +
                R"(device="nvidia1",modelName="NVIDIA A100",hostname="n1",container="main",)" +
                R"(namespace="ml",pod="train"} 42)" + "\n" +
                "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n"
                "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
                "DCGM_FI_DEV_POWER_USAGE{" +
                std::string(kGpu0Labels) +
                R"(,hostname="n1",DCGM_FI_DRIVER_VERSION="550.163.01"} 62.123000)" + "\n");
}

TEST_F(ExporterPageTest, EscapesLabelValuesAndHelp) {
  AddGpu(0);
  options_.hostname = "n\"1\\\n";
  SetCounters("DCGM_FI_DEV_GPU_TEMP, gauge, a\\b\n");
  gpus_[0].model = "A \"B\"";
  gpus_[0].numbers = {1};
  EXPECT_THAT(Render(), HasSubstr(R"(modelName="A \"B\"",hostname="n\"1\\\n"} 1)"));
  EXPECT_THAT(Render(), HasSubstr("GPU_TEMP a\\\\b\n"));
}

TEST_F(ExporterPageTest, LabelsLookAsTheOptionsSay) {
  AddGpu(0);
  options_.style = {.old_names = true, .replace_blanks = true};
  SetCounters("DCGM_FI_DEV_GPU_TEMP, gauge, C\n");
  gpus_[0].numbers = {1};
  holders_["GPU-0"].sole_holder = ContainerName{"ml", "train", "main"};
  EXPECT_THAT(Render(), HasSubstr(R"({gpu="0",uuid="GPU-0",)"));
  EXPECT_THAT(Render(), HasSubstr("hostname="));
  EXPECT_THAT(Render(), HasSubstr(R"(modelName="NVIDIA-A100",hostname="n1",container_name="main",)"
                                  R"(pod_name="train",pod_namespace="ml"} 1)"));
  options_.style.no_hostname = true;
  EXPECT_THAT(Render(), Not(HasSubstr("hostname=")));
}

TEST_F(ExporterPageTest, SharesAddUpToTheDevice) {
  AddGpu(0);
  options_.hostname = "";
  SetCounters(
      "DCGM_FI_DEV_GPU_UTIL, gauge, u\nDCGM_FI_DEV_FB_USED, gauge, m\nDCGM_FI_DEV_FB_FREE, gauge, "
      "f");
  gpus_[0].numbers = {90, 9000, 1000};
  holders_["GPU-0"].shares = {
      {.holder = {"ml", "a", "main"}, .percent = 30, .bytes = 1000.0 * (1 << 20)},
      {.holder = {"ml", "b", "main"}, .percent = 40, .bytes = 3000.0 * (1 << 20)},
      {.holder = {"ml", "c", "main"}}};
  const std::string page = Render();
  const std::string gpu(kGpu0Labels);
  const auto line = [&](const char* name, const char* pod, const char* value) {
    const std::string labels =
        *pod == '\0' ? "" : fmt::format(R"(,container="main",namespace="ml",pod="{}")", pod);
    return fmt::format("DCGM_FI_DEV_{}{{{}{}}} {}\n", name, gpu, labels, value);
  };
  EXPECT_THAT(page, HasSubstr(line("GPU_UTIL", "a", "30") + line("GPU_UTIL", "b", "40") +
                              line("GPU_UTIL", "", "20")));
  EXPECT_THAT(page, HasSubstr(line("FB_USED", "a", "1000") + line("FB_USED", "b", "3000") +
                              line("FB_USED", "", "5000")));
  EXPECT_THAT(page, HasSubstr(line("FB_FREE", "", "1000")));
  EXPECT_THAT(page, Not(HasSubstr("pod=\"c\"")))
      << "the use of pod c is unknown and counts in the rest";
}

TEST_F(ExporterPageTest, XidSeriesHaveTheLastXidAndCounts) {
  AddGpu(0);
  options_.hostname = "";
  SetCounters(
      "DCGM_FI_DEV_XID_ERRORS, gauge, x\nDCGM_EXP_XID_ERRORS_TOTAL, counter, t\n"
      "DCGM_EXP_XID_ERRORS_COUNT, gauge, c\n");
  const std::string gpu(kGpu0Labels);
  EXPECT_EQ(Render(),
            "# HELP DCGM_FI_DEV_XID_ERRORS x\n# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
            "DCGM_FI_DEV_XID_ERRORS{" +
                gpu + R"(,err_code="0",err_msg="No Error"} 0)" + "\n");
  holders_["GPU-0"].sole_holder = ContainerName{"ml", "a", "main"};
  xids_["GPU-0"] = {.last = 79, .total = {{31, 2}, {79, 1}}, .in_window = {{79, 1}}};
  const std::string page = Render();
  EXPECT_THAT(page, HasSubstr("DCGM_FI_DEV_XID_ERRORS{" + gpu +
                              R"(,container="main",err_code="79",err_msg="GPU has fallen off)"));
  EXPECT_THAT(page, HasSubstr("DCGM_EXP_XID_ERRORS_TOTAL{" + gpu +
                              R"(,container="main",namespace="ml",pod="a",xid="31"} 2)"));
  EXPECT_THAT(page,
              HasSubstr("DCGM_EXP_XID_ERRORS_COUNT{" + gpu +
                        R"(,container="main",namespace="ml",pod="a",window_size_in_ms="300000",)" +
                        R"(xid="79"} 1)"));
  options_.exports_xids = false;
  EXPECT_EQ(Render(), "") << "absent, not zero";
}

}  // namespace
}  // namespace tessera::agent
