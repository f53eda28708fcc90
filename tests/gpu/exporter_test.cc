// SPDX-License-Identifier: Apache-2.0
// The metrics of dcgm-exporter with the simulated driver: the real library loader, threads, and
// calls that really hang. The tests in src/agent/exporter use virtual time.
#include "src/agent/exporter/exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/gpu/nvml_library.h"
#include "src/sim/profile.h"
#include "src/sim/simgpu/driver_root.h"
#include "src/sim/simgpu/inject.h"
#include "src/sim/state.h"

namespace tessera::agent {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kGpus = 8;

class SimulatedExporterTest : public ::testing::Test {
 protected:
  SimulatedExporterTest() : quiet_([](std::string_view) {}) {
    const std::string libraries = dir_.path() + "/libraries";
    std::filesystem::create_directories(libraries);
    std::filesystem::copy_file(SIM_NVML_LIBRARY, libraries + "/libnvidia-ml.so.1");
    std::ofstream(libraries + "/libcuda.so.1") << "not used here";
    ::setenv("SIMGPU_DEV_ROOT", dir_.path().c_str(), 1);
  }
  ~SimulatedExporterTest() override {
    if (state_) state_->ClearFaults(nullptr, sim::kAllGpus);
    OnRunner([this] {
      exporter_.reset();
      caller_.reset();
    });
    runner_.Quit();
    thread_.join();
  }

  void Start(const std::string& model) {
    const std::string root = dir_.path() + "/driver";
    Result<sim::Profile> profile = sim::LoadProfile(model);
    ASSERT_TRUE(profile.ok()) << profile.status().ToString();
    profile->gpus = kGpus;
    const Status status = sim::CreateDriverRoot({.profile = *profile,
                                                 .node_name = "node",
                                                 .root = root,
                                                 .library_dir = dir_.path() + "/libraries",
                                                 .device_files = sim::DeviceFiles::kPlain,
                                                 .dev_root = dir_.path()});
    ASSERT_TRUE(status.ok()) << status.ToString();
    state_ = std::make_unique<sim::State>();
    ASSERT_EQ(state_->Open(sim::StateDir(root)), 0);
    OnRunner([&] {
      PageOptions options{.counters = std::make_shared<const CounterSpecs>(DefaultCounters()),
                          .hostname = "node"};
      Exporter::Sources sources;
      sources.loader = std::make_shared<gpu::NvmlLibraryLoader>(root);
      sources.caller = caller_.get();
      exporter_ = std::make_unique<Exporter>(&runner_, std::move(options), milliseconds(200),
                                             std::move(sources));
      exporter_->Start();
    });
  }
  void OnRunner(const std::function<void()>& task) {
    std::promise<void> done;
    runner_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  std::string Text() {
    std::string text;
    OnRunner([&] { text = exporter_->text(); });
    return text;
  }
  // Waits until the text fulfills `condition`, or for 30 s. Returns the last text.
  std::string TextWhere(const std::function<bool(const std::string&)>& condition) {
    for (int i = 0; i < 600; ++i) {
      std::string text = Text();
      if (condition(text)) return text;
      std::this_thread::sleep_for(milliseconds(50));
    }
    return Text();
  }
  // The age of the GPU's values, in seconds.
  double AgeSeconds(int gpu) {
    const std::string sample =
        fmt::format("tessera_exporter_sample_age_seconds{{gpu=\"{}\"}} ", gpu);
    MetricsText state;
    OnRunner([&] { exporter_->WriteOwnMetrics(&state); });
    const std::string text = state.Take();
    const size_t at = text.find(sample);
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + sample.size());
  }
  static size_t CountSeries(const std::string& text, std::string_view start) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(start, at)) != std::string::npos; ++at) {
      count += at == 0 || text[at - 1] == '\n' ? 1 : 0;
    }
    return count;
  }

  const ScopedLogSinkForTest quiet_;
  TempDir dir_;
  std::unique_ptr<sim::State> state_;
  EpollTaskRunner runner_;
  std::thread thread_{[this] { runner_.Run(); }};
  std::unique_ptr<gpu::ThreadCaller> caller_ = std::make_unique<gpu::ThreadCaller>(&runner_);
  std::unique_ptr<Exporter> exporter_;
};

TEST_F(SimulatedExporterTest, AHopperGpuHasEveryDefaultFieldThatNvmlHas) {
  Start("h100-sxm5-80gb");
  // The default fields whose number of series is wrong.
  const auto wrong_fields = [](const std::string& page) {
    std::vector<std::string> wrong;
    for (const Field& field : AllFields()) {
      if (!field.is_default || field.type == "label") continue;
      const size_t wanted = field.source == FieldSource::kNone ? 0 : kGpus;
      if (CountSeries(page, fmt::format("{}{{", field.name)) != wanted)
        wrong.emplace_back(field.name);
    }
    return wrong;
  };
  const std::string text =
      TextWhere([&](const std::string& page) { return wrong_fields(page).empty(); });
  EXPECT_THAT(wrong_fields(text), ::testing::IsEmpty());
  EXPECT_THAT(text, HasSubstr("modelName=\"NVIDIA H100 80GB HBM3\",hostname=\"node\","
                              "DCGM_FI_DRIVER_VERSION=\""));
}

TEST_F(SimulatedExporterTest, AnAmpereGpuHasNoProfilingMetrics) {
  Start("a100-sxm4-80gb");
  const std::string text = TextWhere(
      [](const std::string& page) { return CountSeries(page, "DCGM_FI_DEV_FB_USED{") == kGpus; });
  EXPECT_THAT(text, Not(HasSubstr("DCGM_FI_PROF_")));
  EXPECT_EQ(CountSeries(text, "DCGM_FI_DEV_FB_USED{"), kGpus);
}

TEST_F(SimulatedExporterTest, ALostGpuHasNoSeriesAndComesBack) {
  Start("a100-sxm4-80gb");
  const auto has_gpu3 = [](const std::string& page) {
    return page.find("DCGM_FI_DEV_GPU_TEMP{gpu=\"3\"") != std::string::npos;
  };
  ASSERT_TRUE(has_gpu3(TextWhere(has_gpu3)));
  sim::InjectLost(state_.get(), 3);
  // On a busy machine another GPU may miss a round, too.
  const std::string text = TextWhere([&](const std::string& page) {
    return !has_gpu3(page) && CountSeries(page, "DCGM_FI_DEV_GPU_TEMP{") == kGpus - 1;
  });
  EXPECT_THAT(text, Not(HasSubstr("gpu=\"3\"")));
  EXPECT_EQ(CountSeries(text, "DCGM_FI_DEV_GPU_TEMP{"), kGpus - 1);
  sim::Recover(state_.get(), 3);
  EXPECT_TRUE(has_gpu3(TextWhere(has_gpu3)));
}

TEST_F(SimulatedExporterTest, AHangInAnyCallRemovesTheSeriesOfItsGpu) {
  Start("h100-sxm5-80gb");
  const auto has_gpu3 = [](const std::string& page) {
    return page.find("gpu=\"3\"") != std::string::npos;
  };
  for (const char* call : {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues",
                           "nvmlGpmSampleGet", "nvmlDeviceGetMemoryInfo_v2"}) {
    SCOPED_TRACE(call);
    ASSERT_TRUE(has_gpu3(TextWhere(has_gpu3)));
    ASSERT_EQ(state_->AddFault(call, 3, 0, true, 0, 0), 0);
    const std::string text = TextWhere([&](const std::string& page) {
      return !has_gpu3(page) && CountSeries(page, "DCGM_FI_DEV_FB_USED{") == kGpus - 1;
    });
    EXPECT_EQ(CountSeries(text, "DCGM_FI_DEV_FB_USED{"), kGpus - 1);
    EXPECT_GE(AgeSeconds(3), 1.5);
    for (int i = 0; i < 600 && AgeSeconds(7) >= 1.5; ++i)
      std::this_thread::sleep_for(milliseconds(50));
    EXPECT_LT(AgeSeconds(7), 1.5);
    state_->ClearFaults(nullptr, sim::kAllGpus);
  }
}

}  // namespace
}  // namespace tessera::agent
