// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/driver_release.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

class NoDriver final : public gpu::NvmlLoader {
 public:
  Result<std::shared_ptr<gpu::Nvml>> Load() override { return Status(Code::kNotFound, "none"); }
  std::string Fingerprint() override { return "driver"; }
};

class DriverReleaseTest : public ::testing::Test {
 protected:
  DriverReleaseWatch::Events Count() {
    return {.on_change = [this] { ++changes_; }, .on_check = [this] { ++checks_; }};
  }

  TempDir dir_;
  const std::string file_ = dir_.path() + "/release-driver";
  FakeTaskRunner runner_;
  int changes_ = 0;
  int checks_ = 0;
};

TEST_F(DriverReleaseTest, TheDriverIsClosedWhileTheFileExists) {
  DriverReleaseWatch release(&runner_, file_, Count());
  release.Start();
  const auto loader = release.Gate(std::make_shared<NoDriver>());
  EXPECT_EQ(loader->Fingerprint(), "driver");
  ASSERT_TRUE(WriteFileAtomically(file_, "", 0600).ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.path() + "/other", "", 0600).ok());
  runner_.RunUntilIdle();
  EXPECT_TRUE(release.closed());
  EXPECT_EQ(loader->Fingerprint(), "");
  EXPECT_NE(loader->Load().status().message().find("because " + file_ + " exists"),
            std::string::npos);
  EXPECT_EQ(changes_, 1);
  std::filesystem::remove(file_);
  runner_.RunUntilIdle();
  EXPECT_FALSE(release.closed());
  EXPECT_EQ(loader->Fingerprint(), "driver");
  EXPECT_EQ(changes_, 2);
}

TEST_F(DriverReleaseTest, SessionsAreCheckedTwiceAfterAChange) {
  DriverReleaseWatch release(&runner_, file_, Count());
  release.Start();
  ASSERT_TRUE(WriteFileAtomically(file_, "", 0600).ok());
  runner_.RunUntilIdle();
  EXPECT_EQ(checks_, 0);
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(checks_, 1);
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_EQ(checks_, 2);
}

TEST_F(DriverReleaseTest, AFileThatExistsAtTheStartClosesTheDriverWithoutANotification) {
  ASSERT_TRUE(WriteFileAtomically(file_, "", 0600).ok());
  DriverReleaseWatch release(&runner_, file_, Count());
  EXPECT_TRUE(release.closed());
  release.Start();
  runner_.RunUntilIdle();
  EXPECT_EQ(changes_, 0);
}

}  // namespace
}  // namespace tessera::agent
