// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/driver_watch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "src/agent/node/readiness.h"
#include "src/base/file.h"

namespace tessera::agent {
namespace {

class DriverWatchTest : public ::testing::Test {
 protected:
  DriverWatchTest() {
    for (const char* root : {"/host", "/host/run/nvidia"}) (void)MakeDirs(dir_.path() + root);
  }
  std::string Host() const { return dir_.path() + "/host"; }
  std::string Container() const { return Host() + "/run/nvidia/driver"; }
  DriverWatchOptions Options() const {
    return {.roots = {{"/", Host()}, {"/run/nvidia/driver", Container()}},
            .host_mount = Host(),
            .driver_ready = dir_.path() + "/driver-ready"};
  }
  static void Install(const std::string& root, const std::string& version) {
    const std::string lib = root + "/usr/lib/x86_64-linux-gnu";
    ASSERT_TRUE(MakeDirs(lib).ok());
    for (const std::string stem : {"libnvidia-ml", "libcuda"}) {
      const std::string file = fmt::format("{}.so.{}", stem, version);
      std::ofstream(JoinPath(lib, file)) << "not a library";
      std::filesystem::create_symlink(file, fmt::format("{}/{}.so.1", lib, stem));
    }
  }
  void Start() {
    watch_.emplace(&runner_, Options());
    watch_->Start([this] { ++changes_; });
  }
  void Tick() { runner_.AdvanceTimeAndRun(DriverWatch::kInterval); }

  TempDir dir_;
  FakeTaskRunner runner_;
  std::optional<DriverWatch> watch_;
  int changes_ = 0;
};

TEST_F(DriverWatchTest, FollowsTheRootOfADriverContainer) {
  Start();
  EXPECT_EQ(watch_->root().host_path, "/");
  Tick();
  EXPECT_EQ(changes_, 0);
  // A mount appears all at once, below a directory that inotify would not report.
  Install(dir_.path() + "/made", "550.1");
  std::filesystem::rename(dir_.path() + "/made", Container());
  Tick();
  EXPECT_EQ(watch_->root().host_path, "/run/nvidia/driver");
  EXPECT_EQ(changes_, 1);
  std::filesystem::rename(Container(), dir_.path() + "/gone");
  Tick();
  EXPECT_EQ(watch_->root().host_path, "/");
  EXPECT_EQ(changes_, 2);
  Tick();
  EXPECT_EQ(changes_, 2);
}

// A session that is opened before the device nodes are made would count too few GPUs.
TEST_F(DriverWatchTest, PreparesARootBeforeItIsUsed) {
  DriverWatchOptions options = Options();
  std::vector<std::string> prepared;
  options.before_use = [&](const DriverRoot& root) {
    EXPECT_FALSE(watch_ && watch_->root() == root);
    prepared.push_back(root.container_path);
  };
  watch_.emplace(&runner_, options);
  watch_->Start([] {});
  Install(Container(), "550.1");
  Tick();
  EXPECT_EQ(watch_->root().container_path, Container());
  EXPECT_EQ(prepared, (std::vector<std::string>{Host(), Container()}));
}

TEST_F(DriverWatchTest, TheHostsDriverIsPreferred) {
  Install(Container(), "550.1");
  Start();
  EXPECT_EQ(watch_->root().host_path, "/run/nvidia/driver");
  Install(Host(), "550.2");
  Tick();
  EXPECT_EQ(watch_->root().host_path, "/");
  EXPECT_EQ(watch_->facts().candidates.size(), 2u);
}

TEST_F(DriverWatchTest, UsesTheRootThatNvidiasValidatorNames) {
  Install(Host(), "550.1");
  Install(Host() + "/opt/driver", "570.1");
  Start();
  EXPECT_EQ(watch_->root().host_path, "/");
  std::ofstream(dir_.path() + "/driver-ready") << "NVIDIA_DRIVER_ROOT=/opt/driver\n";
  Tick();
  EXPECT_EQ(watch_->root(), (DriverRoot{"/opt/driver", Host() + "/opt/driver"}));
  std::filesystem::remove(dir_.path() + "/driver-ready");
  Tick();
  EXPECT_EQ(watch_->root().host_path, "/");
}

TEST_F(DriverWatchTest, FollowsTheFilesOfTheRootThatNvidiasValidatorNames) {
  std::ofstream(dir_.path() + "/driver-ready") << "NVIDIA_DRIVER_ROOT=/opt/driver\n";
  Start();
  EXPECT_EQ(watch_->facts().candidates.front().nvml_version, "");
  Install(Host() + "/opt/driver", "570.1");
  Tick();
  EXPECT_EQ(changes_, 1);
  EXPECT_EQ(watch_->facts().candidates.front().nvml_version, "570.1");
}

TEST_F(DriverWatchTest, ALibraryThatIsBeingWrittenIsNotOpened) {
  Install(Host(), "550.1");
  FoundDriverLoader loader(std::make_shared<DriverWatch>(&runner_, Options()));
  const auto loaded = loader.Load();
  EXPECT_EQ(loaded.status().code(), Code::kUnavailable);
  EXPECT_NE(loaded.status().message().find("is not complete"), std::string::npos);
}

TEST_F(DriverWatchTest, ReadinessReportsMissingPartsAndWritesTheFiles) {
  int findings = 0, files = 0;
  ReadinessOptions options{
      .driver = Options(),
      .validations_dir = dir_.path() + "/validations",
      .gpus_on_bus = [] { return size_t{1}; },
      .open_devices = [this](const std::vector<int>&,
                             auto done) { runner_.Post([done] { done({}); }); },
      .on_driver_files = [&] { ++files; },
      .on_findings = [&] { ++findings; }};
  NodeReadiness readiness(&runner_, options);
  readiness.Start();
  auto broken = std::make_shared<device::NodeInventory>();
  broken->problem = "no library";
  readiness.SetInventory(broken, false);
  EXPECT_EQ(readiness.findings().driver_reason, "DriverNotReady");
  EXPECT_FALSE(readiness.findings().smoke_passed);
  readiness.SetInventory(broken, true);
  EXPECT_EQ(readiness.findings().driver_reason, "") << "an administrator closed the driver";

  Install(Container(), "550.1");
  Tick();
  EXPECT_EQ(files, 1);
  auto working = std::make_shared<device::NodeInventory>();
  working->gpus.push_back({.uuid = "GPU-0", .minor = 0});
  readiness.SetInventory(working, false);
  runner_.RunUntilIdle();
  EXPECT_TRUE(readiness.findings().smoke_passed);
  EXPECT_GT(findings, 0);
  const auto text = ReadFile(dir_.path() + "/validations/driver-ready");
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("NVIDIA_DRIVER_ROOT=/run/nvidia/driver\n"), std::string::npos);
  readiness.SetInventory(broken, false);
  EXPECT_FALSE(PathExists(dir_.path() + "/validations/driver-ready"));
}

}  // namespace
}  // namespace tessera::agent
