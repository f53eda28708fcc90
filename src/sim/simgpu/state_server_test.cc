// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/state_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "src/sim/state_socket.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kBytes = 4 << 20;

class StateServerTest : public ::testing::Test {
 protected:
  StateServerTest() : node_({.profile = "t4", .gpus = 1}) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    stop_read_.Reset(ends[0]);
    stop_.Reset(ends[1]);
    server_ = std::thread([this] { status_ = ServeState(node_.driver_root(), stop_read_); });
    for (int i = 0; i < 20'000 && !IsSocket(socket_); ++i) usleep(1000);
  }
  ~StateServerTest() override { Stop(); }
  void Stop() {
    stop_.Reset();
    if (server_.joinable()) server_.join();
  }

  testing::SimNode node_;
  const std::string socket_ = node_.driver_root() + kStateSocket;
  Fd stop_read_, stop_;
  Status status_;
  std::thread server_;
};

TEST_F(StateServerTest, AClientGetsTheNodeForReadingAndWriting) {
  State state;
  ASSERT_EQ(state.Open(socket_), 0);
  EXPECT_TRUE(state.writable());
  EXPECT_EQ(state.inode(), node_.state().inode());
  EXPECT_STREQ(state.facts(0).uuid, node_.state().facts(0).uuid);
  state.gpu_state(0).temperature_c = 77;
  EXPECT_EQ(node_.state().gpu_state(0).temperature_c, 77u);
}

// POSIX drops the locks of a process when it closes any descriptor of their file.
TEST_F(StateServerTest, AProcessThatOpensTheNodeTwiceKeepsItsSlot) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    State first, second;
    ProcessSlot slot;
    const bool held = first.Open(socket_) == 0 && slot.Claim(&first) == 0 &&
                      slot.Charge(0, kBytes) == 0 && second.Open(socket_) == 0;
    if (write(ready[1], held ? "y" : "n", 1) != 1) _exit(1);
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_EQ(node_.state().UsedBytes(0), kBytes);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(node_.state().UsedBytes(0), 0u);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(StateServerTest, AClientThatReadsNothingDelaysNoOtherClient) {
  const Fd silent(ConnectTo(socket_));
  EXPECT_TRUE(silent.valid());
  State state;
  EXPECT_EQ(state.Open(socket_), 0);
}

TEST_F(StateServerTest, OnlyOneProcessServesANode) {
  EXPECT_EQ(ServeState(node_.driver_root(), stop_read_).code(), Code::kAlreadyExists);
  State state;
  EXPECT_EQ(state.Open(socket_), 0);
}

TEST_F(StateServerTest, TheSocketEndsWithTheServerAndAnOldFileIsReplaced) {
  Stop();
  EXPECT_TRUE(status_.ok()) << status_.ToString();
  EXPECT_FALSE(PathExists(socket_));
  State state;
  EXPECT_EQ(state.Open(socket_), ENOENT);
  // A killed server leaves a file of this name.
  ASSERT_TRUE(WriteFileAtomically(socket_, "", 0644).ok());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  stop_read_.Reset(ends[0]);
  stop_.Reset(ends[1]);
  server_ = std::thread([this] { status_ = ServeState(node_.driver_root(), stop_read_); });
  for (int i = 0; i < 20'000 && !IsSocket(socket_); ++i) usleep(1000);
  EXPECT_EQ(state.Open(socket_), 0);
}

TEST(StateServerNodeTest, AMissingNodeIsNamed) {
  TempDir dir("server");
  const Status status = ServeState(dir.path(), Fd());
  EXPECT_EQ(status.code(), Code::kNotFound);
}

}  // namespace
}  // namespace tessera::sim
