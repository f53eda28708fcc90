// SPDX-License-Identifier: Apache-2.0
#include "src/grant/client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <thread>

#include "src/base/file.h"

namespace tessera::grant {
namespace {

using namespace std::chrono_literals;

// Accepts one connection after the other and runs the given action on each.
class FakeAgent {
 public:
  using Behavior = std::function<void(int fd)>;

  FakeAgent(const std::string& path, std::vector<Behavior> behaviors) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    listener_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::thread([this, behaviors = std::move(behaviors)] {
      for (const Behavior& behavior : behaviors) {
        const Fd client(::accept(listener_.get(), nullptr, nullptr));
        if (!client.valid()) return;
        behavior(client.get());
      }
    });
  }
  ~FakeAgent() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  Fd listener_;
  std::thread thread_;
};

void ReadRequest(int fd) {
  char buffer[4096];
  ASSERT_GT(::recv(fd, buffer, sizeof(buffer), 0), 0);
}

void Answer(int fd) {
  ReadRequest(fd);
  Grant grant;
  grant.agent_version = "1";
  ASSERT_TRUE(WriteFd(fd, Frame(EncodeReply(grant))).ok());
}

class ClientTest : public ::testing::Test {
 protected:
  Status RequestStatus(const std::string& socket, Duration timeout) {
    return RequestGrant(socket, {}, timeout).status();
  }

  TempDir dir_;
  std::string socket_ = dir_.path() + "/grant.sock";
};

TEST_F(ClientTest, ReturnsTheAgentsAnswer) {
  const FakeAgent agent(socket_, {Answer});
  const auto reply = RequestGrant(socket_, {}, 5s);
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->agent_version, "1");
}

TEST_F(ClientTest, ReturnsTheAgentsErrorUnchanged) {
  const FakeAgent agent(socket_, {[](int fd) {
                          ReadRequest(fd);
                          const auto body =
                              EncodeReply(Status(Code::kPermissionDenied, "replayed"));
                          ASSERT_TRUE(WriteFd(fd, Frame(body)).ok());
                        }});
  const auto reply = RequestGrant(socket_, {}, 5s);
  EXPECT_EQ(reply.status().ToString(), "PERMISSION_DENIED: replayed");
}

TEST_F(ClientTest, SuggestsToCheckTheAgentOnlyIfItIsUnreachable) {
  const std::string hint = "check that tessera-agent runs on this node";
  EXPECT_TRUE(RequestStatus(socket_, 20ms).message().ends_with(hint));
  const FakeAgent agent(socket_, {[](int fd) {
                          ReadRequest(fd);
                          const auto body = EncodeReply(Status(Code::kUnavailable, "in use"));
                          ASSERT_TRUE(WriteFd(fd, Frame(body)).ok());
                        }});
  EXPECT_EQ(RequestStatus(socket_, 5s).ToString(), "UNAVAILABLE: in use");
}

TEST_F(ClientTest, SendsALargeRequestToAnAgentThatReadsLate) {
  GrantRequest request{
      .pod_uid = Uid("u"), .pod_namespace = "ns", .pod_name = "p", .container = "c"};
  for (const char* variable : {"A", "B", "C", "D"}) {
    request.tokens.push_back({variable, std::string(60 << 10, 'x')});
  }
  std::string body(EncodeRequest(request).size(), '\0');
  const FakeAgent agent(socket_, {[&](int fd) {
                          std::this_thread::sleep_for(20ms);  // the socket's buffer is full now
                          std::array<unsigned char, kFrameHeaderSize> header;
                          ASSERT_EQ(::recv(fd, header.data(), header.size(), MSG_WAITALL), 4);
                          ASSERT_EQ(FrameLength(header).value(), body.size());
                          ASSERT_EQ(::recv(fd, body.data(), body.size(), MSG_WAITALL),
                                    static_cast<ssize_t>(body.size()));
                          ASSERT_TRUE(WriteFd(fd, Frame(EncodeReply(Grant()))).ok());
                        }});
  EXPECT_TRUE(RequestGrant(socket_, request, 5s).ok());
  EXPECT_EQ(body, EncodeRequest(request));
}

TEST_F(ClientTest, ReassemblesAnAnswerInPieces) {
  const FakeAgent agent(socket_, {[](int fd) {
                          ReadRequest(fd);
                          Grant grant;
                          grant.agent_version = "in pieces";
                          const std::string frame = Frame(EncodeReply(grant));
                          for (const char c : frame) {
                            ASSERT_TRUE(WriteFd(fd, std::string_view(&c, 1)).ok());
                            std::this_thread::sleep_for(100us);
                          }
                        }});
  const auto reply = RequestGrant(socket_, {}, 5s);
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->agent_version, "in pieces");
}

TEST_F(ClientTest, RetriesIfTheAgentDiesBeforeItAnswers) {
  const FakeAgent agent(socket_, {[](int) {}, ReadRequest, Answer});
  EXPECT_TRUE(RequestStatus(socket_, 5s).ok());
}

TEST_F(ClientTest, NamesTheSocketIfNoAgentListens) {
  const Status status = RequestStatus(socket_, 20ms);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find(socket_), std::string::npos) << status.message();
}

TEST_F(ClientTest, GivesUpOnAStalledAgentAfterTheTimeout) {
  Fd release_read, release_write;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  release_read.Reset(ends[0]);
  release_write.Reset(ends[1]);
  const FakeAgent agent(socket_, {[&](int) {
                          char byte;
                          EXPECT_EQ(::read(release_read.get(), &byte, 1), 0);
                        }});
  const Status status = RequestStatus(socket_, 30ms);
  release_write.Reset();
  EXPECT_EQ(status.ToString(), "DEADLINE_EXCEEDED: tessera-agent at " + socket_ +
                                   ": no answer in time: restart tessera-agent on this node");
}

TEST_F(ClientTest, RejectsAnAnswerThatAnnouncesTooMuch) {
  const FakeAgent agent(socket_, {[](int fd) {
                          ReadRequest(fd);
                          ASSERT_TRUE(WriteFd(fd, "\xff\xff\xff\x7f").ok());
                        }});
  EXPECT_EQ(RequestStatus(socket_, 5s).code(), Code::kResourceExhausted);
}

TEST_F(ClientTest, RejectsAPathThatIsTooLong) {
  EXPECT_EQ(RequestStatus(std::string(200, 'x'), 10ms).code(), Code::kInvalidArgument);
}

TEST_F(ClientTest, AcceptsTheLongestSocketPath) {
  const std::string longest(sizeof(sockaddr_un::sun_path) - 1, 'x');
  EXPECT_EQ(RequestStatus(longest, 1ms).code(), Code::kUnavailable);
  EXPECT_EQ(RequestStatus(longest + "x", 1ms).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::grant
