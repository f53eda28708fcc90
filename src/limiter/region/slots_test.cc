// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/slots.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "src/base/file.h"

namespace tessera::limiter {
namespace {

class SlotsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(MakeUsage(usage_path().c_str()), 0);
    ASSERT_EQ(MapUsage(usage_path().c_str(), &usage_), 0);
  }
  void TearDown() override { ::munmap(usage_, sizeof(Usage)); }
  std::string usage_path() const { return dir_.path() + "/usage"; }
  uint64_t Held() const {
    uint64_t held = 0;
    for (const auto& bytes : usage_->gpus[0].held) held += bytes;
    return held;
  }
  int Sweep() { return SweepSlots(usage_path().c_str(), usage_); }

  // Starts a process that claims a slot, holds `bytes`, and runs until it is killed.
  pid_t StartHolder(uint64_t bytes) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      Usage* usage = nullptr;
      uint32_t slot = 0;
      if (ClaimSlot(usage_path().c_str(), &usage, &slot) != 0) ::_exit(1);
      usage->gpus[0].held[slot] = bytes;
      usage->gpus[0].pending[slot] = 5;
      if (::write(ready[1], "r", 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return pid;
  }

  static void Kill(pid_t pid) {
    ::kill(pid, SIGKILL);
    int status;
    ::waitpid(pid, &status, 0);
  }

  TempDir dir_;
  Usage* usage_ = nullptr;
};

TEST_F(SlotsTest, EachProcessGetsASlotOfItsOwn) {
  const pid_t first = StartHolder(100), second = StartHolder(30);
  EXPECT_EQ(Held(), 130u);
  Kill(first);
  Kill(second);
}

TEST_F(SlotsTest, AThousandProcessesHoldSlotsAtOnce) {
  std::vector<pid_t> holders;
  for (int i = 0; i < 1000; ++i) holders.push_back(StartHolder(1));
  EXPECT_EQ(Held(), 1000u);
  EXPECT_EQ(Sweep(), 0);
  for (const pid_t holder : holders) Kill(holder);
  EXPECT_EQ(Sweep(), 1000);
  EXPECT_EQ(Held(), 0u);
}

TEST_F(SlotsTest, TheSlotOfAKilledProcessIsClearedAndOthersStay) {
  const pid_t dead = StartHolder(100), alive = StartHolder(30);
  Kill(dead);
  EXPECT_EQ(Sweep(), 1);
  EXPECT_EQ(Held(), 30u);
  EXPECT_EQ(Sweep(), 0);
  Kill(alive);
}

// A process has closed its files only when it is a zombie or gone.
TEST_F(SlotsTest, AnOwnerThatStillRunsKeepsItsSlotEvenWithoutItsLock) {
  usage_->slots_end = 1;
  usage_->pids[0] = ::getpid();
  usage_->gpus[0].held[0] = 9;
  EXPECT_EQ(Sweep(), 0);
  usage_->starts[0] = 1;  // an earlier process with the same id
  EXPECT_EQ(Sweep(), 1);
  EXPECT_EQ(Held(), 0u);
}

// A process that cannot read /proc does not know whether other processes have ended.
TEST_F(SlotsTest, ASweepWithoutDescriptorsForProcKeepsTheSlot) {
  usage_->slots_end = 1;
  usage_->pids[0] = ::getpid();
  usage_->gpus[0].held[0] = 9;
  std::vector<int> all;
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) all.push_back(fd);
  ::close(all.back());  // for the file with the slots
  all.pop_back();
  EXPECT_EQ(Sweep(), 0);
  for (const int fd : all) ::close(fd);
  usage_->starts[0] = 1;
  EXPECT_EQ(Sweep(), 1);
}

// If a child inherited the slot, a worker that never uses a GPU would keep the memory of its dead
// parent.
TEST_F(SlotsTest, AChildDoesNotKeepTheSlotOfItsDeadParent) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    Usage* usage = nullptr;
    uint32_t slot = 0;
    if (ClaimSlot(usage_path().c_str(), &usage, &slot) != 0) ::_exit(1);
    usage->gpus[0].held[slot] = 7;
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) ::pause();
    }
    if (::write(ready[1], &child, sizeof(child)) != ssize_t(sizeof(child))) ::_exit(1);
    while (true) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ready[0], &child, sizeof(child)), ssize_t(sizeof(child)));
  Kill(parent);
  EXPECT_EQ(Sweep(), 1);
  EXPECT_EQ(Held(), 0u);
  ::kill(child, SIGKILL);
}

TEST_F(SlotsTest, AMissingForeignOrTruncatedFileIsRejected) {
  Usage* usage = nullptr;
  uint32_t slot = 0;
  std::ofstream(dir_.path() + "/usage", std::ios::binary | std::ios::in | std::ios::out)
      .write("\0\0\0\0", 4);
  EXPECT_EQ(ClaimSlot(usage_path().c_str(), &usage, &slot), EPROTO);
  EXPECT_EQ(ClaimSlot((dir_.path() + "/none").c_str(), &usage, &slot), ENOENT);
  std::filesystem::resize_file(dir_.path() + "/usage", 100);
  EXPECT_EQ(ClaimSlot(usage_path().c_str(), &usage, &slot), EPROTO) << "too short";
}

TEST_F(SlotsTest, ProcessesThatStartTogetherMakeOneFile) {
  std::filesystem::remove(usage_path());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(MakeUsage(usage_path().c_str()), 0); });
  }
  for (std::thread& thread : threads) thread.join();
  Usage* usage = nullptr;
  uint32_t slot = 9;
  ASSERT_EQ(ClaimSlot(usage_path().c_str(), &usage, &slot), 0);
  EXPECT_EQ(slot, 0u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1);
}

}  // namespace
}  // namespace tessera::limiter
