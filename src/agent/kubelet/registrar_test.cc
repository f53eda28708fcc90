// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/registrar.h"

#include <gtest/gtest.h>

#include <optional>

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

// A kubelet that answers when the test calls Answer.
class FakeRegistry : public KubeletRegistry {
 public:
  std::string SocketIdentity() const override { return identity; }
  void Register(const Registration& registration, Done done) override {
    EXPECT_EQ(registration.endpoint, "tessera-gpu.sock");
    ++calls;
    if (listens) {
      pending = std::move(done);
    } else {
      runner->Post([done = std::move(done)] { done(Status(Code::kUnavailable, "refused")); });
    }
  }
  void Answer(const Status& status) {
    ASSERT_TRUE(pending != nullptr);
    std::exchange(pending, nullptr)(status);
  }

  FakeTaskRunner* runner = nullptr;
  std::string identity;
  bool listens = true;
  int calls = 0;
  Done pending;
};

class FakeEndpoint : public PluginEndpoint {
 public:
  Status Listen() override {
    ++listen_calls;
    present = listen_status.ok();
    return listen_status;
  }
  bool SocketPresent() const override { return present; }
  void CloseStreams() override { ++close_calls; }
  int open_streams() const override { return streams; }

  Status listen_status;
  bool present = false;
  int listen_calls = 0;
  int close_calls = 0;
  int streams = 0;
};

class RegistrarTest : public ::testing::Test {
 protected:
  RegistrarTest() { kubelet_.runner = &runner_; }

  void OpenStream() {
    ++endpoint_.streams;
    registrar_.OnStreamOpened();
  }
  void CloseStream() {
    --endpoint_.streams;
    registrar_.OnStreamClosed();
  }
  void BecomeRegistered() {
    kubelet_.identity = "1";
    registrar_.Start();
    runner_.RunUntilIdle();
    kubelet_.Answer(Status::Ok());
    OpenStream();
    ASSERT_TRUE(registrar_.registered());
  }
  // The kubelet ends, and a new kubelet creates its socket.
  void RestartKubelet(const std::string& identity) {
    CloseStream();
    endpoint_.present = false;
    registrar_.OnPluginSocketVanished();
    kubelet_.identity = identity;
    registrar_.OnKubeletSocketAppeared();
  }

  // Ends streams until the pause has reached its maximum.
  void EndManyStreams() {
    for (int i = 0; i < 12; ++i) {
      CloseStream();
      runner_.AdvanceTimeAndRun(1s);
      kubelet_.Answer(Status::Ok());
      OpenStream();
    }
  }

  FakeTaskRunner runner_;
  FakeRegistry kubelet_;
  FakeEndpoint endpoint_;
  KubeletMetrics metrics_;
  Registrar registrar_{&runner_,  &kubelet_, &endpoint_, {"tessera-gpu.sock", "nvidia.com/gpu"},
                       &metrics_, nullptr};
};

TEST_F(RegistrarTest, RegistersAtOnceIfTheKubeletListens) {
  BecomeRegistered();
  EXPECT_EQ(kubelet_.calls, 1);
  EXPECT_EQ(endpoint_.listen_calls, 1);
}

TEST_F(RegistrarTest, WaitsWithoutPollingForAMissingKubelet) {
  registrar_.Start();
  runner_.AdvanceTimeAndRun(1h);
  EXPECT_EQ(kubelet_.calls, 0);
  kubelet_.identity = "1";
  registrar_.OnKubeletSocketAppeared();
  EXPECT_EQ(kubelet_.calls, 1);
}

TEST_F(RegistrarTest, RetriesEveryTenMillisecondsWhileTheKubeletStarts) {
  registrar_.Start();
  kubelet_.identity = "1";
  kubelet_.listens = false;
  registrar_.OnKubeletSocketAppeared();
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_GE(kubelet_.calls, 99);
  kubelet_.listens = true;
  runner_.AdvanceTimeAndRun(10ms);
  EXPECT_TRUE(kubelet_.pending != nullptr);
}

TEST_F(RegistrarTest, RetriesOnceASecondAtAStaleSocket) {
  kubelet_.identity = "1";
  kubelet_.listens = false;
  registrar_.Start();
  runner_.AdvanceTimeAndRun(10s);
  const int before = kubelet_.calls;
  runner_.AdvanceTimeAndRun(60s);
  EXPECT_LE(kubelet_.calls - before, 61);
  EXPECT_GE(kubelet_.calls - before, 59);
}

TEST_F(RegistrarTest, RegistersAgainWithARestartedKubelet) {
  BecomeRegistered();
  for (int i = 2; i < 102; ++i) {
    RestartKubelet(std::to_string(i));
    ASSERT_TRUE(kubelet_.pending != nullptr) << i;
    EXPECT_TRUE(endpoint_.present);
    kubelet_.Answer(Status::Ok());
    OpenStream();
    ASSERT_TRUE(registrar_.registered()) << i;
  }
  EXPECT_EQ(metrics_.kubelet_restarts.value(), 100u);
  runner_.AdvanceTimeAndRun(1h);
  EXPECT_EQ(kubelet_.calls, 101) << "only a restart leads to another registration";
}

TEST_F(RegistrarTest, LateEventOfTheSameSocketDoesNotRegisterTwice) {
  BecomeRegistered();
  registrar_.OnKubeletSocketAppeared();
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_EQ(kubelet_.calls, 1);
  EXPECT_EQ(endpoint_.close_calls, 0);
}

TEST_F(RegistrarTest, EventOfTheSameSocketDuringARegistrationDoesNotRegisterTwice) {
  kubelet_.identity = "1";
  registrar_.Start();
  registrar_.OnKubeletSocketAppeared();
  EXPECT_EQ(kubelet_.calls, 1);
}

TEST_F(RegistrarTest, NewKubeletDoesNotWaitForTheAnswerOfTheOldOne) {
  kubelet_.identity = "1";
  registrar_.Start();
  const auto old_answer = kubelet_.pending;
  kubelet_.identity = "2";
  registrar_.OnKubeletSocketAppeared();
  EXPECT_EQ(kubelet_.calls, 2);
  old_answer(Status(Code::kDeadlineExceeded, "late"));
  EXPECT_EQ(kubelet_.calls, 2);
  kubelet_.Answer(Status::Ok());
  OpenStream();
  EXPECT_TRUE(registrar_.registered());
}

TEST_F(RegistrarTest, RegistersAgainWhenTheStreamEnds) {
  BecomeRegistered();
  CloseStream();
  EXPECT_FALSE(registrar_.registered());
  runner_.AdvanceTimeAndRun(10ms);
  EXPECT_EQ(kubelet_.calls, 2);
  kubelet_.Answer(Status::Ok());
  OpenStream();
  EXPECT_TRUE(registrar_.registered());
}

TEST_F(RegistrarTest, PausesGrowWhileStreamsKeepEnding) {
  BecomeRegistered();
  EndManyStreams();
  const int before = kubelet_.calls;
  CloseStream();
  runner_.AdvanceTimeAndRun(999ms);
  EXPECT_EQ(kubelet_.calls, before);
  runner_.AdvanceTimeAndRun(1ms);
  EXPECT_EQ(kubelet_.calls, before + 1);
}

TEST_F(RegistrarTest, PauseIsShortAgainAfterAStableStream) {
  BecomeRegistered();
  EndManyStreams();
  runner_.AdvanceTimeAndRun(Registrar::kStableAge);
  const int before = kubelet_.calls;
  CloseStream();
  runner_.AdvanceTimeAndRun(10ms);
  EXPECT_EQ(kubelet_.calls, before + 1);
}

TEST_F(RegistrarTest, TheEndOfOneOfTwoStreamsCausesNoRegistration) {
  BecomeRegistered();
  OpenStream();
  CloseStream();
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_TRUE(registrar_.registered());
  EXPECT_EQ(kubelet_.calls, 1);
}

TEST_F(RegistrarTest, RegistersAgainIfNoStreamFollows) {
  kubelet_.identity = "1";
  registrar_.Start();
  kubelet_.Answer(Status::Ok());
  EXPECT_FALSE(registrar_.registered());
  runner_.AdvanceTimeAndRun(Registrar::kStreamWait);
  EXPECT_EQ(kubelet_.calls, 2);
}

TEST_F(RegistrarTest, RegistersAgainSoonIfTheStreamEndedBeforeTheAnswer) {
  kubelet_.identity = "1";
  registrar_.Start();
  OpenStream();
  CloseStream();
  kubelet_.Answer(Status::Ok());
  runner_.AdvanceTimeAndRun(Registrar::kShortStreamWait);
  EXPECT_EQ(kubelet_.calls, 2);
}

TEST_F(RegistrarTest, RetriesAfterAnErrorOfTheKubelet) {
  kubelet_.identity = "1";
  registrar_.Start();
  kubelet_.Answer(Status(Code::kInternal, "no"));
  runner_.AdvanceTimeAndRun(10ms);
  EXPECT_EQ(kubelet_.calls, 2);
  EXPECT_EQ(metrics_.registrations.values().at("INTERNAL"), 1u);
}

TEST_F(RegistrarTest, RecreatesARemovedSocketAndKeepsTheStream) {
  BecomeRegistered();
  endpoint_.present = false;
  registrar_.OnPluginSocketVanished();
  EXPECT_TRUE(endpoint_.present);
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_EQ(kubelet_.calls, 1);
  EXPECT_EQ(endpoint_.close_calls, 0);
  EXPECT_TRUE(registrar_.registered());
  EXPECT_EQ(metrics_.socket_repairs.value(), 1u);
}

TEST_F(RegistrarTest, IgnoresAnEventWhileItsSocketIsPresent) {
  BecomeRegistered();
  registrar_.OnPluginSocketVanished();
  EXPECT_EQ(endpoint_.listen_calls, 1);
}

TEST_F(RegistrarTest, ListensLaterIfTheDirIsMissing) {
  endpoint_.listen_status = Status(Code::kNotFound, "no directory");
  kubelet_.identity = "1";
  registrar_.Start();
  runner_.AdvanceTimeAndRun(3s);
  EXPECT_EQ(kubelet_.calls, 0) << "the kubelet could not dial back";
  endpoint_.listen_status = Status::Ok();
  runner_.AdvanceTimeAndRun(2s);
  EXPECT_EQ(kubelet_.calls, 1);
}

TEST_F(RegistrarTest, EventsDoNotMultiplyTheRetriesOfAFailedListen) {
  endpoint_.listen_status = Status(Code::kNotFound, "no directory");
  registrar_.Start();
  for (int i = 0; i < 10; ++i) registrar_.OnPluginSocketVanished();
  const int before = endpoint_.listen_calls;
  runner_.AdvanceTimeAndRun(10s);
  EXPECT_EQ(endpoint_.listen_calls - before, 10);
}

TEST_F(RegistrarTest, RescanFindsAKubeletAfterALostEvent) {
  BecomeRegistered();
  endpoint_.present = false;
  --endpoint_.streams;
  kubelet_.identity = "2";
  registrar_.OnRescan();
  EXPECT_TRUE(endpoint_.present);
  EXPECT_EQ(kubelet_.calls, 2);
}

TEST_F(RegistrarTest, ClosesStreamsOfTheOldKubeletBeforeItRegistersWithTheNewKubelet) {
  BecomeRegistered();
  kubelet_.identity = "2";
  registrar_.OnKubeletSocketAppeared();
  EXPECT_EQ(endpoint_.close_calls, 1);
  EXPECT_EQ(kubelet_.calls, 2);
}

TEST_F(RegistrarTest, DoesNothingAfterItIsDestroyed) {
  kubelet_.identity = "1";
  {
    Registrar gone(&runner_, &kubelet_, &endpoint_, {"tessera-gpu.sock", "nvidia.com/gpu"},
                   &metrics_, nullptr);
    gone.Start();
  }
  kubelet_.Answer(Status(Code::kInternal, "no"));
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_EQ(kubelet_.calls, 1);
}

}  // namespace
}  // namespace tessera::agent
