// SPDX-License-Identifier: Apache-2.0
#include "src/net/accept_loop.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "src/base/log.h"

namespace tessera::net {
namespace {

#if defined(__SANITIZE_ADDRESS__)
#define SKIP_WITH_SANITIZER() \
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors to check an object's type"
#else
#define SKIP_WITH_SANITIZER()
#endif

class AcceptLoopTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(loop_.Listen(path_, 0600).ok()); }

  void RunWithoutDescriptors() {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit few{.rlim_cur = 64, .rlim_max = limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::vector<Fd> all;
    for (Fd fd(::dup(0)); fd.valid(); fd = Fd(::dup(0))) all.push_back(std::move(fd));
    // Would never return if the loop spun.
    runner_.RunUntilIdle();
    for (int i = 0; i < 10; ++i) runner_.AdvanceTimeAndRun(AcceptLoop::kRetryWait);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }

  TempDir dir_;
  const std::string path_ = dir_.path() + "/socket";
  FakeTaskRunner runner_;
  std::vector<Fd> accepted_;
  AcceptLoop loop_{&runner_, [this](Fd fd) { accepted_.push_back(std::move(fd)); }};
};

TEST_F(AcceptLoopTest, WithoutDescriptorsTheLoopPausesAndAcceptsLater) {
  SKIP_WITH_SANITIZER();
  int lines = 0;
  const ScopedLogSinkForTest sink([&](std::string_view) { ++lines; });
  const Result<Fd> client = ConnectUnix(path_);
  ASSERT_TRUE(client.ok());
  RunWithoutDescriptors();
  EXPECT_TRUE(accepted_.empty());
  EXPECT_EQ(lines, 1);
  runner_.AdvanceTimeAndRun(AcceptLoop::kRetryWait);
  EXPECT_EQ(accepted_.size(), 1u);
}

TEST_F(AcceptLoopTest, APauseByTheOwnerOutlastsALackOfDescriptors) {
  SKIP_WITH_SANITIZER();
  const ScopedLogSinkForTest sink([](std::string_view) {});
  const Result<Fd> client = ConnectUnix(path_);
  ASSERT_TRUE(client.ok());
  RunWithoutDescriptors();
  loop_.Pause();
  runner_.AdvanceTimeAndRun(AcceptLoop::kRetryWait);
  EXPECT_TRUE(accepted_.empty());
  loop_.Resume();
  runner_.RunUntilIdle();
  EXPECT_EQ(accepted_.size(), 1u);
}

TEST_F(AcceptLoopTest, ConnectionsWaitWhileTheLoopIsPaused) {
  loop_.Pause();
  const Result<Fd> client = ConnectUnix(path_);
  ASSERT_TRUE(client.ok());
  runner_.RunUntilIdle();
  EXPECT_TRUE(accepted_.empty());
  loop_.Resume();
  runner_.RunUntilIdle();
  EXPECT_EQ(accepted_.size(), 1u);
}

}  // namespace
}  // namespace tessera::net
