// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/log.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

class GrantServerTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(server_.Listen(path_).ok()); }

  Fd Connect() {
    auto fd = net::ConnectUnix(path_);
    EXPECT_TRUE(fd.ok()) << fd.status().ToString();
    runner_.RunUntilIdle();
    return std::move(*fd);
  }
  void Send(const Fd& fd, std::string_view bytes) {
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    runner_.RunUntilIdle();
  }
  // The received answer; "" while the connection is open and silent.
  static std::string Answer(const Fd& fd) {
    char buffer[4096];
    const ssize_t count = ::recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    return count > 0 ? std::string(buffer, static_cast<size_t>(count)) : "";
  }
  static bool Closed(const Fd& fd) {
    pollfd poll_fd{.fd = fd.get(), .events = POLLIN | POLLRDHUP, .revents = 0};
    return ::poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & (POLLHUP | POLLRDHUP)) != 0;
  }
  static std::string RequestFrame() {
    return grant::Frame(grant::EncodeRequest({.pod_uid = Uid("u"),
                                              .pod_namespace = "ns",
                                              .pod_name = "p",
                                              .container = "c",
                                              .tokens = {{"TESSERA_GRANT_X", "t"}}}));
  }

  TempDir dir_;
  std::string path_ = dir_.path() + "/grant.sock";
  FakeTaskRunner runner_;
  GrantMetrics metrics_;
  std::vector<GrantServer::Reply> waiting_;
  bool delays_replies_ = false;
  GrantServer server_{&runner_,
                      {.max_connections = 4, .request_timeout = 5s, .uid = ::geteuid()},
                      &metrics_,
                      [this](const grant::GrantRequest&, GrantServer::Reply reply) {
                        if (delays_replies_) return waiting_.push_back(std::move(reply));
                        grant::Grant grant;
                        grant.agent_version = "here";
                        reply(grant);
                      }};
};

TEST_F(GrantServerTest, AnswersARequestThatComesByteByByte) {
  const Fd client = Connect();
  for (const char byte : RequestFrame()) Send(client, {&byte, 1});
  EXPECT_NE(Answer(client).find("here"), std::string::npos);
  EXPECT_TRUE(Closed(client));
  EXPECT_EQ(server_.connections(), 0u);
}

TEST_F(GrantServerTest, AnswersAClientThatHasClosedItsSendingSide) {
  const Fd client = Connect();
  delays_replies_ = true;
  Send(client, RequestFrame());
  ::shutdown(client.get(), SHUT_WR);
  runner_.RunUntilIdle();
  waiting_.at(0)(grant::Grant{.agent_version = "late"});
  EXPECT_NE(Answer(client).find("late"), std::string::npos);
}

TEST_F(GrantServerTest, LogsGrantsAndReasonsOfRejections) {
  std::string log;
  const ScopedLogSinkForTest sink([&](std::string_view line) { log.append(line).append("\n"); });
  delays_replies_ = true;
  const auto request_grant = [&](const Result<grant::Grant>& reply) {
    log.clear();
    const Fd client = Connect();
    Send(client, RequestFrame());
    ASSERT_EQ(waiting_.size(), 1u) << Answer(client);
    std::exchange(waiting_, {})[0](reply);
    runner_.RunUntilIdle();
  };
  request_grant(grant::Grant{.devices = {{.uuid = "GPU-1"}, {.uuid = "GPU-2"}}});
  EXPECT_NE(log.find("granted GPUs to a container pod=ns/p uid=u container=c gpus=GPU-1,GPU-2"),
            std::string::npos)
      << log;
  request_grant(Status(Code::kUnavailable, "why"));
  EXPECT_NE(log.find("container=c error=\"UNAVAILABLE: why\""), std::string::npos) << log;
  EXPECT_EQ(log.find("gpus="), std::string::npos) << log;
}

TEST_F(GrantServerTest, RejectsAClientOfAnotherUser) {
  GrantServer strict(&runner_, {.uid = ::geteuid() + 1}, &metrics_,
                     [](const grant::GrantRequest&, const GrantServer::Reply&) { FAIL(); });
  ASSERT_TRUE(strict.Listen(path_).ok());
  const Fd client = Connect();
  Send(client, RequestFrame());
  EXPECT_NE(Answer(client).find("PERMISSION_DENIED"), std::string::npos);
}

TEST_F(GrantServerTest, AnswersAStalledClientAndClosesItsConnection) {
  const Fd client = Connect();
  Send(client, RequestFrame().substr(0, 3));
  runner_.AdvanceTimeAndRun(5s);
  EXPECT_NE(Answer(client).find("DEADLINE_EXCEEDED"), std::string::npos);
  EXPECT_EQ(server_.connections(), 0u);
}

TEST_F(GrantServerTest, StalledClientsDoNotKeepOthersOut) {
  std::vector<Fd> stalled;
  for (int i = 0; i < 4; ++i) stalled.push_back(Connect());
  const Fd client = Connect();
  Send(client, RequestFrame());
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_NE(Answer(client).find("here"), std::string::npos);
  EXPECT_LE(server_.connections(), 4u);
}

TEST_F(GrantServerTest, MoreRequestsThanConnectionsWaitForTheirTurn) {
  delays_replies_ = true;
  std::vector<Fd> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Connect());
    Send(clients.back(), RequestFrame());
  }
  const Fd fifth = Connect();
  Send(fifth, RequestFrame());
  runner_.AdvanceTimeAndRun(10s);
  EXPECT_EQ(Answer(fifth), "");
  EXPECT_FALSE(Closed(fifth));
  for (const auto& reply : std::exchange(waiting_, {})) reply(grant::Grant{.agent_version = "ok"});
  for (const Fd& fd : clients) EXPECT_NE(Answer(fd).find("ok"), std::string::npos);
  runner_.RunUntilIdle();
  for (const auto& reply : waiting_) reply(grant::Grant{.agent_version = "ok"});
  EXPECT_NE(Answer(fifth).find("ok"), std::string::npos);
}

TEST_F(GrantServerTest, RejectsAnAnnouncedSizeAboveTheLimit) {
  const Fd client = Connect();
  Send(client, "\xff\xff\xff\xff");
  EXPECT_NE(Answer(client).find("RESOURCE_EXHAUSTED"), std::string::npos);
}

TEST_F(GrantServerTest, RejectsAnInvalidRequestWithAReason) {
  const Fd client = Connect();
  Send(client, grant::Frame("GET / HTTP/1.1"));
  EXPECT_NE(Answer(client).find("INVALID_ARGUMENT"), std::string::npos);
}

TEST_F(GrantServerTest, AClosedConnectionLeavesNoState) {
  delays_replies_ = true;
  {
    const Fd silent = Connect();
    const Fd client = Connect();
    Send(client, RequestFrame());
  }
  runner_.RunUntilIdle();
  waiting_.at(0)(grant::Grant());
  EXPECT_EQ(server_.connections(), 0u);
}

TEST_F(GrantServerTest, HandlerMayAnswerAfterTheServerIsGone) {
  GrantServer::Reply late;
  {
    GrantServer brief(&runner_, {.uid = ::geteuid()}, &metrics_,
                      [&](const grant::GrantRequest&, GrantServer::Reply reply) { late = reply; });
    ASSERT_TRUE(brief.Listen(path_).ok());
    const Fd client = Connect();
    Send(client, RequestFrame());
    ASSERT_TRUE(late != nullptr);
  }
  late(grant::Grant());
  runner_.AdvanceTimeAndRun(10s);
}

TEST_F(GrantServerTest, SocketHasMode0600AndIsRemovedWithTheServer) {
  struct stat info;
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  {
    GrantServer brief(&runner_, {}, &metrics_, nullptr);
    ASSERT_TRUE(brief.Listen(dir_.path() + "/other.sock").ok());
    EXPECT_TRUE(brief.SocketPresent());
    ::unlink((dir_.path() + "/other.sock").c_str());
    EXPECT_FALSE(brief.SocketPresent());
    ASSERT_TRUE(brief.Listen(dir_.path() + "/other.sock").ok());
    EXPECT_TRUE(brief.SocketPresent());
  }
  EXPECT_FALSE(PathExists(dir_.path() + "/other.sock"));
}

}  // namespace
}  // namespace tessera::agent
