// SPDX-License-Identifier: Apache-2.0
// Use and limits of containers, and Events about them.
#include "src/agent/limits/container_usage.h"

#include "api/names.h"
#include "src/agent/limits/testing/container_usage_fixture.h"

namespace tessera::agent {
namespace {

namespace fs = std::filesystem;

TEST_F(ContainerUsageTest, PublishesMemoryAndLimitOfAContainer) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  file.usage().gpus[0].peak = 2048 * kMebi;
  Report({{.pid = 71, .memory = Bytes(1400 * kMebi)}});
  Start();
  AdvanceSeconds(3);
  const ContainerGpuUse use = Use();
  EXPECT_EQ(use.held, Bytes(1024 * kMebi));
  EXPECT_EQ(use.limit, Bytes(4096 * kMebi));
  EXPECT_EQ(use.granted, Bytes(4096 * kMebi));
  EXPECT_EQ(use.peak, Bytes(2048 * kMebi));
  EXPECT_EQ(use.reported, Bytes(1400 * kMebi));
  EXPECT_EQ(use.unaccounted, Bytes(0)) << "a context";
  EXPECT_EQ(use.processes, 1);
  EXPECT_TRUE(events_.empty());
}

TEST_F(ContainerUsageTest, AfterAStartAContainerIsUnreadUntilItIsFound) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  Start();
  EXPECT_FALSE(Use().is_read);
  AdvanceSeconds(3);
  EXPECT_TRUE(Use().is_read);
}

TEST_F(ContainerUsageTest, FollowsAContainerThatStartsAgain) {
  AddProcess(71, "aa");
  {
    UsageTestFile file(UsagePath("aa"));
    file.Hold(0, 1024 * kMebi);
    Start();
    AdvanceSeconds(3);
  }
  EndProcess(71);
  AdvanceSeconds(2);
  EXPECT_EQ(Use().held, Bytes(0));
  AddProcess(80, "cc");
  UsageTestFile file(UsagePath("cc"));
  file.Hold(0, 5 * kMebi);
  AdvanceSeconds(10);
  EXPECT_EQ(Use().held, Bytes(5 * kMebi));
  ASSERT_EQ(usage_->files().size(), 1u);
  EXPECT_TRUE(usage_->files()[0].usage != nullptr && usage_->files()[0].usage->valid());
}

TEST_F(ContainerUsageTest, NoLinkOutOfTheContainerIsFollowed) {
  AddProcess(71, "aa");
  UsageTestFile secret(temp_.path() + "/secret");
  secret.Hold(0, 1024 * kMebi);
  fs::create_symlink(temp_.path() + "/secret", UsagePath("aa"));
  Start();
  AdvanceSeconds(5);
  EXPECT_EQ(Use().held, Bytes(0));
  // A process that does not see the container's own limits is not trusted either.
  fs::remove(UsagePath("aa"));
  fs::remove(temp_.path() + "/root-aa/dev/tessera/limits/limits");
  AddProcess(72, "dd");
  fs::remove(temp_.path() + "/root-dd/dev/tessera/limits/limits");
  fs::create_symlink(LimitsPath(limits_dir_, {Uid(kUid), "main"}),
                     temp_.path() + "/root-dd/dev/tessera/limits/limits");
  EndProcess(71);
  UsageTestFile other(UsagePath("dd"));
  other.Hold(0, 1024 * kMebi);
  AdvanceSeconds(10);
  EXPECT_EQ(Use().held, Bytes(0));
}

TEST_F(ContainerUsageTest, RefusedAllocationsAreReportedAtMostOnceInFiveMinutes) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 3072 * kMebi);
  Start();
  AdvanceSeconds(4);
  EXPECT_TRUE(events_.empty());
  file.Refuse(2048 * kMebi);
  file.Refuse(1536 * kMebi);
  AdvanceSeconds(1);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonCudaOutOfMemory);
  EXPECT_EQ(events_[0].message, "CUDA out of memory: container main may use 4096 MiB of " + uuid_ +
                                    " and has held up to 3072 MiB; an allocation of 1536.0 MiB was "
                                    "refused, the last of 2 refusals: raise "
                                    "the pod's request of device memory, or allocate less");
  file.Refuse(0);  // a module, whose size the limiter does not know
  AdvanceSeconds(100);
  EXPECT_EQ(events_.size(), 1u);
  AdvanceSeconds(250);
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_NE(events_[1].message.find("; a module or a context was refused: raise"),
            std::string::npos)
      << events_[1].message;
}

TEST_F(ContainerUsageTest, ALaterEventNamesTheLimitThatRefused) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  Start();
  AdvanceSeconds(4);
  file.Refuse(5120 * kMebi);
  AdvanceSeconds(1);
  ASSERT_EQ(events_.size(), 1u);
  file.Refuse(4608 * kMebi);
  AdvanceSeconds(1);
  WriteLimit(2048);
  AdvanceSeconds(350);
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_NE(events_[1].message.find("container main may use 4096 MiB of "), std::string::npos)
      << events_[1].message;
}

TEST_F(ContainerUsageTest, AContainersFirstRefusalIsReportedAlsoIfNoAgentRan) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Refuse(2048 * kMebi);
  Start();
  AdvanceSeconds(4);
  EXPECT_EQ(events_.size(), 1u);
}

TEST_F(ContainerUsageTest, ARefusalWhileNoAgentRunsIsReportedAtTheNextStart) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  Start();
  AdvanceSeconds(3);
  file.Refuse(2048 * kMebi);
  AdvanceSeconds(1);
  ASSERT_EQ(events_.size(), 1u);
  file.Refuse(1536 * kMebi);
  AdvanceSeconds(1);
  EXPECT_EQ(events_.size(), 1u) << "too soon after the first Event";
  for (int start = 0; start < 2; ++start) {
    Start();
    AdvanceSeconds(5);
    EXPECT_EQ(events_.size(), 2u);
  }
  EXPECT_NE(events_[1].message.find("an allocation of 1536.0 MiB was refused: raise"),
            std::string::npos)
      << events_[1].message;
}

TEST_F(ContainerUsageTest, ALimitBelowUseIsReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 3072 * kMebi);
  Start();
  AdvanceSeconds(3);
  WriteLimit(3500);
  AdvanceSeconds(2);
  EXPECT_TRUE(events_.empty());
  WriteLimit(1024);
  AdvanceSeconds(2);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonMemoryLimitBelowUse);
  EXPECT_EQ(Use().limit, Bytes(1024 * kMebi));
  EXPECT_EQ(Use().held, Bytes(3072 * kMebi));
}

TEST_F(ContainerUsageTest, AContainerThatIsReleasedIsNotShown) {
  AddProcess(71, "aa");
  Start();
  AdvanceSeconds(2);
  ASSERT_TRUE(ledger_.Release({Uid(kUid), "main"}).ok());
  AdvanceSeconds(2);
  EXPECT_TRUE(uses_->empty());
}

TEST_F(ContainerUsageTest, AContainerThatIsNotLimitedIsShownAsSuch) {
  fs::remove_all(limits_dir_);
  Start();
  AdvanceSeconds(2);
  EXPECT_FALSE(Use().limited);
  EXPECT_EQ(Use().granted, Bytes(4096 * kMebi));
  ASSERT_TRUE(ledger_.Release({Uid(kUid), "main"}).ok());
  AdvanceSeconds(1);
  EXPECT_TRUE(uses_->empty());
}

TEST_F(ContainerUsageTest, AContainerThatHasEndedIsNotShown) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, kMebi);
  Start();
  AdvanceSeconds(3);
  ended_ = {"main"};
  AdvanceSeconds(2);
  EXPECT_EQ(Use().held, Bytes(kMebi)) << "it runs again, and the API server does not know it yet";
  EndProcess(71);
  AdvanceSeconds(2);
  EXPECT_TRUE(uses_->empty());
}

TEST_F(ContainerUsageTest, PublishesNoContainerBeforeItsFirstSearch) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 5 * kMebi);
  Start();
  for (int i = 0; i < 4; ++i) {
    AdvanceSeconds(1);
    if (uses_ == nullptr || uses_->empty()) continue;
    EXPECT_EQ(Use().held, Bytes(5 * kMebi));
  }
  EXPECT_EQ(Use().held, Bytes(5 * kMebi));
}

}  // namespace
}  // namespace tessera::agent
