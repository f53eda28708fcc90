// SPDX-License-Identifier: Apache-2.0
#include "src/kube/watch.h"

#include <gtest/gtest.h>

#include <mutex>

#include "src/kube/backoff.h"
#include "src/kube/objects.h"
#include "src/kube/testing/wire_writer.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube {
namespace {

using net::testing::RawServer;
using std::chrono::milliseconds;

std::string Object(const std::string& name, int version) {
  return fmt::format(R"({{"metadata":{{"name":"{}","resourceVersion":"{}"}}}})", name, version);
}
std::string Event(const std::string& type, const std::string& object) {
  return fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object);
}
std::string ListOf(int version, const std::string& items, const std::string& more = "") {
  const std::string body =
      fmt::format(R"({{"metadata":{{"resourceVersion":"{}","continue":"{}"}},"items":[{}]}})",
                  version, more, items);
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}
constexpr std::string_view kStreamHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
std::string Chunk(const std::string& data) {
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}
constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Answers requests in the order of the script, on any connection. Then keeps connections open
// without a response. Closes the connection after a response that ends in "CLOSE".
// Writes raw bytes, because an HTTP server neither splits frames nor ends in the middle of one.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> script) : script_(std::move(script)) {}

  std::vector<std::string> targets() {
    const std::lock_guard lock(mutex_);
    return targets_;
  }
  net::Url url() const { return server_.url(); }

 private:
  void Serve(int fd) {
    while (true) {
      const std::string header = RawServer::ReadHeader(fd);
      if (header.empty()) return;
      std::string answer = Next(header);
      const bool close = answer.ends_with("CLOSE");
      if (close) answer.resize(answer.size() - 5);
      // Sends short responses in small pieces, so that frames are split everywhere.
      const size_t step = answer.size() > 4096 ? answer.size() : 7;
      for (size_t at = 0; at < answer.size(); at += step) {
        RawServer::Write(fd, std::string_view(answer).substr(at, step));
      }
      if (close) return;
    }
  }
  std::string Next(const std::string& header) {
    const std::lock_guard lock(mutex_);
    const size_t space = header.find(' ');
    targets_.push_back(header.substr(space + 1, header.find(' ', space + 1) - space - 1));
    return targets_.size() <= script_.size() ? script_[targets_.size() - 1] : "";
  }

  std::mutex mutex_;  // The server's thread writes `targets_`, the test reads it.
  std::vector<std::string> script_;
  std::vector<std::string> targets_;
  RawServer server_{[this](int fd) { Serve(fd); }};
};

class WatchTest : public ::testing::Test, public Watch::Delegate {
 protected:
  // Starts with lists, like servers before 1.34.
  void Start(std::vector<std::string> script, Watch::Options options = {}) {
    options.stream_initial = false;
    Follow({.type = kPods}, std::move(script), options);
  }
  void Follow(ListQuery query, std::vector<std::string> script, Watch::Options options = {}) {
    server_ = std::make_unique<ScriptedServer>(std::move(script));
    client_ = std::make_unique<Client>(io_, runner_, Config{.server = server_->url()},
                                       ClientOptions{.max_attempts = 1});
    watch_ = std::make_unique<Watch>(*client_, std::move(query), *this, options);
  }
  bool WaitForLog(const std::string& log) {
    const bool reached = runner_.RunUntil([&] { return log_.find(log) != std::string::npos; });
    EXPECT_TRUE(reached) << log_;
    return reached;
  }
  std::string WatchTarget(size_t index) { return server_->targets().at(index); }

  void OnListBegin() override { log_ += "["; }
  void OnListEnd() override { log_ += "] "; }
  void OnObject(const RawObject& object) override { Note("+", object); }
  void OnDeleted(const RawObject& object) override { Note("-", object); }
  void OnError(const Status& status, Duration retry_in) override {
    waits_.push_back(retry_in);
    log_ += fmt::format("!{} ", InfoOf(status.code()).name);
  }
  void OnRecovered() override { ++recoveries_; }
  void Note(std::string_view sign, const RawObject& raw) {
    log_ += fmt::format("{}{} ", sign, Decode<PodObject>(raw).value().meta.name);
    if (++notes_ == destroy_after_) watch_.reset();
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::string log_;
  std::vector<Duration> waits_;  // of reported errors
  int recoveries_ = 0;
  int notes_ = 0;
  int destroy_after_ = -1;
  std::unique_ptr<ScriptedServer> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Watch> watch_;
};

TEST_F(WatchTest, ListsInPagesThenFollows) {
  Start({ListOf(5, Object("a", 1), "more"), ListOf(5, Object("b", 2)),
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("c", 6))) +
             Chunk(Event("MODIFIED", Object("a", 7)) + Event("DELETED", Object("b", 8)))});
  WaitForLog("[+a +b ] +c +a -b ");
  EXPECT_NE(WatchTarget(1).find("continue=more"), std::string::npos);
  EXPECT_NE(WatchTarget(2).find("watch=1"), std::string::npos);
  EXPECT_NE(WatchTarget(2).find("allowWatchBookmarks=true"), std::string::npos);
  EXPECT_NE(WatchTarget(2).find("resourceVersion=5"), std::string::npos);
}

std::string EndOfInitial(int version) {
  return Event("BOOKMARK", fmt::format(R"({{"metadata":{{"resourceVersion":"{}","annotations":)"
                                       R"({{"k8s.io/initial-events-end":"true"}}}}}})",
                                       version));
}

TEST_F(WatchTest, ReceivesInitialObjectsInOneStream) {
  Follow({.type = kPods}, {std::string(kStreamHead) + Chunk(Event("ADDED", Object("a", 900))) +
                               Chunk(Event("ADDED", Object("b", 3)) + EndOfInitial(7)) +
                               Chunk(Event("MODIFIED", Object("b", 8))) + std::string(kLastChunk),
                           std::string(kStreamHead) + Chunk(Event("DELETED", Object("a", 9)))});
  WaitForLog("[+a +b ] +b -a ");
  EXPECT_NE(WatchTarget(0).find("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            std::string::npos);
  EXPECT_EQ(WatchTarget(0).find("resourceVersion="), std::string::npos);
  EXPECT_NE(WatchTarget(1).find("resourceVersion=8"), std::string::npos);
  EXPECT_EQ(WatchTarget(1).find("sendInitialEvents"), std::string::npos);
}

TEST_F(WatchTest, RestartsAfterABrokenInitialStream) {
  Follow(
      {.type = kPods},
      {std::string(kStreamHead) + Chunk(Event("ADDED", Object("a", 5))) + "CLOSE",
       std::string(kStreamHead) + Chunk(Event("ADDED", Object("b", 6))) + Chunk(EndOfInitial(7))});
  WaitForLog("[+a !UNAVAILABLE [+b ] ");
}

TEST_F(WatchTest, ListsIfTheServerRejectsInitialStreams) {
  const std::string refusal = R"({"kind":"Status","code":422,"reason":"Invalid","message":"no"})";
  Follow({.type = kPods},
         {fmt::format("HTTP/1.1 422 No\r\nContent-Length: {}\r\n\r\n{}", refusal.size(), refusal),
          ListOf(5, Object("a", 1)), "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
          ListOf(6, Object("a", 1)), std::string(kStreamHead)});
  WaitForLog("[+a ] !OUT_OF_RANGE [+a ] ");
}

// The time limit is long enough for the first object to arrive on a busy machine.
TEST_F(WatchTest, ListsIfTheInitialStreamStalls) {
  Follow({.type = kPods},
         {std::string(kStreamHead) + Chunk(Event("ADDED", Object("a", 5))),
          ListOf(5, Object("a", 1)), std::string(kStreamHead)},
         {.initial_stall_timeout = milliseconds(2000)});
  WaitForLog("[+a !DEADLINE_EXCEEDED [+a ] ");
}

// The response to the first request comes in pieces with pauses. The time limit is long enough for
// a busy machine, and shorter than all pauses together.
TEST_F(WatchTest, AnInitialStreamMayTakeLongWhileDataArrives) {
  RawServer server([](int fd) {
    if (RawServer::ReadHeader(fd).empty()) return;
    RawServer::Write(fd, kStreamHead);
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      std::this_thread::sleep_for(milliseconds(500));
      RawServer::Write(fd, Chunk(Event("ADDED", Object(name, 5))));
    }
    RawServer::Write(fd, Chunk(EndOfInitial(7)));
    RawServer::ReadHeader(fd);
  });
  client_ = std::make_unique<Client>(io_, runner_, Config{.server = server.url()}, ClientOptions{});
  watch_ = std::make_unique<Watch>(*client_, ListQuery{.type = kPods}, *this,
                                   Watch::Options{.initial_stall_timeout = milliseconds(2000)});
  WaitForLog("[+a +b +c +d +e ] ");
  watch_.reset();
  client_.reset();
}

TEST_F(WatchTest, RetriesTheInitialStreamAfterThePagingPeriod) {
  const std::string gone = "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n";
  const std::string refusal = "HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n";
  Follow(
      {.type = kPods},
      {refusal, ListOf(5, Object("a", 1)), gone,
       std::string(kStreamHead) + Chunk(Event("ADDED", Object("b", 6))) + Chunk(EndOfInitial(7))},
      {.paging_period = milliseconds(1)});
  WaitForLog("[+a ] !OUT_OF_RANGE [+b ] ");
  EXPECT_EQ(recoveries_, 1);
  EXPECT_NE(WatchTarget(3).find("sendInitialEvents"), std::string::npos);
}

constexpr std::string_view kProtobufHead =
    "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.kubernetes.protobuf;stream=watch\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";

std::string Message(const std::string& name, const std::string& version, bool end = false) {
  testing::WireWriter meta;
  meta.Bytes(1, name).Bytes(6, version);
  if (end) meta.Entry(12, "k8s.io/initial-events-end", "true");
  return testing::WireWriter().Bytes(1, meta.text()).text();
}

std::string ProtobufAnswer(const std::string& status, const std::string& body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: application/vnd.kubernetes.protobuf\r\n"
      "Content-Length: {}\r\n\r\n{}",
      status, body.size(), body);
}

TEST_F(WatchTest, ReceivesProtobufEvents) {
  const std::string gone = testing::WireWriter().Bytes(4, "Expired").Varint(6, 410).text();
  const std::string busy = testing::WireWriter().Bytes(3, "busy").Varint(6, 429).text();
  Follow(
      {.type = kPods, .encoding = Encoding::kProtobuf},
      {ProtobufAnswer("429 No", testing::Enveloped("Status", busy)),
       std::string(kProtobufHead) + Chunk(testing::WatchFrame("ADDED", "Pod", Message("a", "5"))) +
           Chunk(testing::WatchFrame("BOOKMARK", "Pod", Message("", "7", true))) +
           Chunk(testing::WatchFrame("DELETED", "Pod", Message("a", "8"))) +
           Chunk(testing::WatchFrame("ERROR", "Status", gone)),
       std::string(kProtobufHead) +
           Chunk(testing::WatchFrame("BOOKMARK", "Pod", Message("", "9", true)))});
  WaitForLog("!RESOURCE_EXHAUSTED [+a ] -a !OUT_OF_RANGE [] ");
}

TEST_F(WatchTest, ListsInProtobufPages) {
  const auto page = [](const std::string& more, const std::string& name) {
    const std::string meta = testing::WireWriter().Bytes(2, "5").Bytes(3, more).text();
    return ProtobufAnswer(
        "200 OK",
        testing::Enveloped(
            "PodList", testing::WireWriter().Bytes(1, meta).Bytes(2, Message(name, "1")).text()));
  };
  Watch::Options options;
  options.stream_initial = false;
  Follow(
      {.type = kPods, .encoding = Encoding::kProtobuf},
      {page("more", "a"), page("", "b"),
       std::string(kProtobufHead) + Chunk(testing::WatchFrame("ADDED", "Pod", Message("c", "6")))},
      options);
  WaitForLog("[+a +b ] +c ");
  EXPECT_NE(WatchTarget(2).find("resourceVersion=5"), std::string::npos);
}

TEST_F(WatchTest, AnEventMaySpanChunks) {
  const std::string event = Event("ADDED", Object("c", 6));
  Start({ListOf(5, ""), std::string(kStreamHead) + Chunk(event.substr(0, 10)) +
                            Chunk(event.substr(10, 20)) + Chunk(event.substr(30))});
  WaitForLog("[] +c ");
}

TEST_F(WatchTest, ResumesFromTheLastBookmark) {
  Start({ListOf(5, ""),
         std::string(kStreamHead) + Chunk(Event("BOOKMARK", Object("", 42))) +
             std::string(kLastChunk),
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 43)))});
  WaitForLog("[] +x ");
  EXPECT_NE(WatchTarget(2).find("resourceVersion=42"), std::string::npos);
}

TEST_F(WatchTest, ResumesAfterTheConnectionBreaks) {
  Start({ListOf(5, ""), std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 6))) + "CLOSE",
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("y", 7)))});
  WaitForLog("[] +x !UNAVAILABLE +y ");
  EXPECT_EQ(recoveries_, 1);
  EXPECT_NE(WatchTarget(2).find("resourceVersion=6"), std::string::npos);
}

TEST_F(WatchTest, ListsAgainWhenItsVersionIsGone) {
  const std::string gone = R"({"kind":"Status","code":410,"reason":"Expired","message":"too old"})";
  Start({ListOf(5, ""), std::string(kStreamHead) + Chunk(Event("ERROR", gone)),
         ListOf(9, Object("z", 9)), "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
         ListOf(10, Object("z", 9)), std::string(kStreamHead)});
  WaitForLog("[] !OUT_OF_RANGE [+z ] !OUT_OF_RANGE [+z ] ");
}

TEST_F(WatchTest, DoesNotWaitForAServerThatRestartedWithoutItsHistory) {
  Start(
      {ListOf(5, ""), "CLOSE", "CLOSE", "CLOSE", "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"});
  ASSERT_TRUE(WaitForLog("!UNAVAILABLE !OUT_OF_RANGE "));
  EXPECT_GE(waits_.rbegin()[1], Backoff::kFirst);
  EXPECT_LE(waits_.back(), Backoff::kFirst);
}

TEST_F(WatchTest, RestartsTheListWhenItsTokenExpiresBetweenPages) {
  Start({ListOf(5, Object("a", 1), "more"), "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
         ListOf(6, Object("b", 2)), std::string(kStreamHead)});
  WaitForLog("[+a !OUT_OF_RANGE [+b ] ");
  EXPECT_EQ(WatchTarget(2).find("continue"), std::string::npos);
  // The pages become larger, because the token of the smaller pages expired.
  EXPECT_NE(WatchTarget(2).find("limit=2000"), std::string::npos);
}

// The time limit is long enough for the object to arrive on a busy machine.
TEST_F(WatchTest, ReplacesASilentStream) {
  Start({ListOf(5, ""), std::string(kStreamHead),
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 6)))},
        {.stall_timeout = milliseconds(2000)});
  WaitForLog("[] !DEADLINE_EXCEEDED +x ");
}

TEST_F(WatchTest, WaitsAsLongAsTheServerRequests) {
  Start({ListOf(5, ""), "HTTP/1.1 429 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 6)))});
  const MonotonicTime began = runner_.clock().Now();
  WaitForLog("[] !RESOURCE_EXHAUSTED +x ");
  EXPECT_GE(runner_.clock().Now() - began, std::chrono::seconds(1));
}

TEST_F(WatchTest, AnInvalidResponseIsAnErrorThatIsRetried) {
  Start({"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad", ListOf(5, ""),
         std::string(kStreamHead) + Chunk("not json\n"),
         std::string(kStreamHead) + Chunk("{\"type\":\"ADDED\"}\n"),
         std::string(kStreamHead) + Chunk(std::string(5000, 'x')),
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 6)))},
        {.max_event = 4096});
  WaitForLog("!INTERNAL [] !INVALID_ARGUMENT !INVALID_ARGUMENT !RESOURCE_EXHAUSTED +x ");
}

TEST_F(WatchTest, ADelegateMayDestroyTheWatch) {
  destroy_after_ = 2;
  Start({ListOf(5, Object("a", 1)),
         std::string(kStreamHead) +
             Chunk(Event("ADDED", Object("b", 6)) + Event("ADDED", Object("c", 7)))});
  WaitForLog("[+a ] +b ");
  runner_.RunFor(milliseconds(50));
  EXPECT_EQ(log_, "[+a ] +b ");
}

TEST_F(WatchTest, ADelegateMayDestroyTheWatchInTheMiddleOfAList) {
  destroy_after_ = 1;
  Start({ListOf(5, Object("a", 1) + "," + Object("b", 2))});
  WaitForLog("[+a ");
  EXPECT_EQ(log_, "[+a ");
}

}  // namespace
}  // namespace tessera::kube
