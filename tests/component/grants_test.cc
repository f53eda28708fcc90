// SPDX-License-Identifier: Apache-2.0
// The grant socket with its journal, as tessera-runtime meets it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "src/agent/grants_thread.h"
#include "src/grant/client.h"
#include "src/net/unix_listener.h"
#include "tests/component/fake_pod_resources.h"

namespace tessera::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kGpu = "nvidia.com/gpu";
constexpr auto kTimeout = 20s;

class GrantsTest : public ::testing::Test {
 protected:
  GrantsTest() {
    auto inventory = std::make_shared<device::NodeInventory>();
    for (int i = 0; i < 8; ++i) {
      inventory->gpus.push_back({.uuid = "GPU-" + std::to_string(i), .index = i, .minor = i});
    }
    inventory->links = device::LinkMatrix(8);
    devices_.Set(std::make_shared<agent::DeviceSet>(inventory));
  }

  agent::GrantsThreadOptions Options(const std::string& state_dir) const {
    agent::GrantsThreadOptions options;
    options.service.description.version = "test";
    options.state_dir = state_dir;
    options.socket = socket_;
    options.pod_resources_socket = dir_.path() + "/no-kubelet.sock";
    options.socket_client_uid = ::geteuid();
    return options;
  }
  void Start() { Start(dir_.path()); }
  void Start(const std::string& state_dir) {
    grants_.reset();
    grants_ =
        std::make_unique<agent::GrantsThread>(Options(state_dir), &devices_, &signer_, &metrics_);
    const Status status = grants_->Start();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  std::string Token(int gpu) {
    return signer_.Sign(kGpu, {"GPU-" + std::to_string(gpu)}, clock_.WallNow());
  }
  Result<grant::Grant> Ask(const std::string& pod, const std::string& token) {
    return grant::RequestGrant(socket_,
                               {.pod_uid = Uid("uid-" + pod),
                                .pod_namespace = "default",
                                .pod_name = pod,
                                .container = "main",
                                .tokens = {{grant::TokenVariable(kGpu), token}}},
                               kTimeout);
  }
  std::string journal() const { return dir_.path() + "/grants.journal"; }

  TempDir dir_;
  std::string socket_ = dir_.path() + "/run/grant.sock";
  SystemClock clock_;
  grant::TokenSigner signer_{std::string(32, 'k')};
  agent::DeviceSetHolder devices_;
  agent::GrantMetrics metrics_;
  std::unique_ptr<agent::GrantsThread> grants_;
};

TEST_F(GrantsTest, AnAnswerStaysTheSameAfterARestartOfTheAgent) {
  Start();
  const std::string token = Token(3);
  const auto first = Ask("a", token);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  Start();
  const auto second = Ask("a", token);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(Ask("b", token).status().code(), Code::kPermissionDenied);
}

TEST_F(GrantsTest, ATornJournalLosesOnlyGrantsThatWereNotAnswered) {
  Start();
  const std::string token = Token(1);
  ASSERT_TRUE(Ask("a", token).ok());
  const std::string whole = *ReadFile(journal());
  grants_.reset();
  const Fd fd(::open(journal().c_str(), O_WRONLY | O_APPEND));
  ASSERT_TRUE(WriteFd(fd.get(), std::string_view(whole).substr(8, 20)).ok());
  Start();
  EXPECT_EQ(metrics_.journal_repairs.value(), 1u);
  EXPECT_TRUE(Ask("a", token).ok());
  EXPECT_EQ(Ask("b", token).status().code(), Code::kPermissionDenied);
}

TEST_F(GrantsTest, DamagedJournalKeepsTheRestAndTheAgentRunning) {
  Start();
  const std::string one = Token(1), two = Token(2), three = Token(3);
  ASSERT_TRUE(Ask("a", one).ok() && Ask("b", two).ok() && Ask("c", three).ok());
  grants_.reset();
  std::string damaged = *ReadFile(journal());
  damaged[damaged.find("uid-b")] = 'X';
  ASSERT_TRUE(WriteFileAtomically(journal(), damaged, 0600).ok());
  Start();
  EXPECT_EQ(metrics_.journal_repairs.value(), 1u);
  EXPECT_TRUE(Ask("a", one).ok());
  EXPECT_EQ(Ask("x", three).status().code(), Code::kPermissionDenied);
  EXPECT_TRUE(PathExists(journal() + ".damaged"));
}

TEST_F(GrantsTest, FullDiskRejectsAndRecovers) {
  const std::string small = dir_.path() + "/small";
  ASSERT_TRUE(MakeDirs(small).ok());
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=16k") != 0) {
    GTEST_SKIP() << "needs CAP_SYS_ADMIN for a small tmpfs";
  }
  struct Unmount {
    const std::string& path;
    ~Unmount() { ::umount2(path.c_str(), MNT_DETACH); }
  } unmount{small};
  Start(small);
  const std::string before = Token(1);
  ASSERT_TRUE(Ask("a", before).ok());
  {
    const Fd filler(::open((small + "/filler").c_str(), O_WRONLY | O_CREAT, 0600));
    while (WriteFd(filler.get(), std::string(512, 'x')).ok()) {
    }
    // The journal's last page has room of its own; it ends with some grants more.
    Status status;
    for (int pod = 0; pod < 100 && status.ok(); ++pod) {
      status = Ask("a", Token(1)).status();
    }
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.ToString();
    EXPECT_NE(status.message().find("No space left"), std::string::npos) << status.message();
    EXPECT_TRUE(Ask("a", before).ok()) << "earlier grants stay valid";
  }
  ASSERT_EQ(::unlink((small + "/filler").c_str()), 0);
  EXPECT_TRUE(Ask("b", Token(2)).ok());
  Start(small);
  EXPECT_TRUE(Ask("a", before).ok());
  grants_.reset();
}

TEST_F(GrantsTest, RemovedSocketComesBack) {
  Start();
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(::unlink(socket_.c_str()), 0);
    EXPECT_EQ(Ask("a", "no token").status().code(), Code::kInvalidArgument);
  }
}

TEST_F(GrantsTest, ManyRequestsAreAnsweredWhileOtherClientsStall) {
  Start();
  std::vector<Fd> stalled;
  for (int i = 0; i < 40; ++i) {
    auto fd = net::ConnectUnix(socket_);
    ASSERT_TRUE(fd.ok());
    if (i % 2 == 0) {
      ASSERT_TRUE(WriteFd(fd->get(), "\x10").ok());
    }
    stalled.push_back(std::move(*fd));
  }
  std::atomic<int> granted{0};
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&, i] {
      const std::string token = Token(i);
      for (int round = 0; round < 20; ++round) {
        if (Ask("pod-" + std::to_string(i), token).ok()) ++granted;
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(granted, 160);
}

TEST_F(GrantsTest, AGpuThatTheKubeletGaveToTwoPodsIsGrantedOnce) {
  Start();
  ASSERT_TRUE(Ask("a", Token(1)).ok());
  const auto second = Ask("b", Token(1));
  EXPECT_EQ(second.status().code(), Code::kUnavailable) << "the kubelet cannot be asked";
  EXPECT_NE(second.status().message().find("default/a"), std::string::npos);
}

TEST_F(GrantsTest, TheGpuOfAPodThatTheKubeletForgotIsGrantedAgain) {
  FakePodResources pods(dir_.path() + "/no-kubelet.sock");
  Start();
  ASSERT_TRUE(Ask("a", Token(1)).ok());
  pods.Admit("b", {"GPU-0", "GPU-1"});
  const auto second = Ask("b", Token(1));
  EXPECT_TRUE(second.ok()) << second.status().ToString();
}

TEST_F(GrantsTest, GpuOfAPodThatTheKubeletListsIsRejected) {
  FakePodResources pods(dir_.path() + "/no-kubelet.sock");
  Start();
  ASSERT_TRUE(Ask("a", Token(1)).ok());
  pods.Admit("a", {"GPU-0", "GPU-1"});
  pods.Admit("b", {"GPU-1"});
  EXPECT_EQ(Ask("b", Token(1)).status().code(), Code::kFailedPrecondition);
}

TEST_F(GrantsTest, AKubeletThatStallsDelaysOnlyRequestsThatNeedIt) {
  FakePodResources pods(dir_.path() + "/no-kubelet.sock");
  Start();
  ASSERT_TRUE(Ask("a", Token(1)).ok());
  pods.Admit("b", {"GPU-1"});
  pods.Stall();
  std::thread waiting([&] {
    const auto second = Ask("b", Token(1));
    EXPECT_EQ(second.status().code(), Code::kUnavailable) << second.status().ToString();
    EXPECT_NE(second.status().message().find("default/a"), std::string::npos);
  });
  for (int gpu = 2; gpu < 8; ++gpu) EXPECT_TRUE(Ask("c", Token(gpu)).ok());
  waiting.join();
}

TEST_F(GrantsTest, StateFolderThatIsMissingIsAnError) {
  agent::GrantsThread grants(Options(dir_.path() + "/nowhere"), &devices_, &signer_, &metrics_);
  const Status status = grants.Start();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("nowhere"), std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
