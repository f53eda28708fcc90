// SPDX-License-Identifier: Apache-2.0
#include "src/kube/watch.h"

#include <gtest/gtest.h>

#include <mutex>

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
std::string Chunk(const std::string& data) { return fmt::format("{:x}\r\n{}\r\n", data.size(), data); }
constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Answers requests in the order of the script, on whatever connection they come; afterwards it holds
// connections open in silence. An answer that ends in "CLOSE" closes the connection.
class FaultServer {
 public:
  explicit FaultServer(std::vector<std::string> script) : script_(std::move(script)) {}

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
      // Byte by byte where it is short: frames are split everywhere.
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

class WatchTest : public testing::Test, public Watch::Delegate {
 protected:
  void Start(std::vector<std::string> script, Watch::Options options = {}) {
    server_ = std::make_unique<FaultServer>(std::move(script));
    client_ = std::make_unique<Client>(io_, runner_, Config{.server = server_->url()},
                                       ClientOptions{.max_attempts = 1});
    watch_ = std::make_unique<Watch>(*client_, ListQuery{.type = kPods}, *this, options);
  }
  bool Until(const std::string& log) {
    const bool reached = runner_.RunUntil([&] { return log_.find(log) != std::string::npos; });
    EXPECT_TRUE(reached) << log_;
    return reached;
  }
  std::string WatchTarget(size_t index) { return server_->targets().at(index); }

  void OnListBegin() override { log_ += "["; }
  void OnListEnd() override { log_ += "] "; }
  void OnObject(const Json& object) override { Note("+", object); }
  void OnDeleted(const Json& object) override { Note("-", object); }
  void OnTrouble(const Status& status, Duration) override {
    log_ += fmt::format("!{} ", InfoOf(status.code()).name);
  }
  void Note(std::string_view sign, const Json& object) {
    log_ += fmt::format("{}{} ", sign, object.Find("metadata")->StringAt("name").value_or("?"));
    if (++notes_ == destroy_after_) watch_.reset();
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::string log_;
  int notes_ = 0;
  int destroy_after_ = -1;
  std::unique_ptr<FaultServer> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Watch> watch_;
};

TEST_F(WatchTest, ListsInPagesThenFollows) {
  Start({ListOf(5, Object("a", 1), "more"), ListOf(5, Object("b", 2)),
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("c", 6))) +
             Chunk(Event("MODIFIED", Object("a", 7)) + Event("DELETED", Object("b", 8)))});
  Until("[+a +b ] +c +a -b ");
  EXPECT_NE(WatchTarget(1).find("continue=more"), std::string::npos);
  EXPECT_NE(WatchTarget(2).find("watch=1"), std::string::npos);
  EXPECT_NE(WatchTarget(2).find("allowWatchBookmarks=true"), std::string::npos);
  EXPECT_NE(WatchTarget(2).find("resourceVersion=5"), std::string::npos);
}

TEST_F(WatchTest, AnEventMaySpanChunks) {
  const std::string event = Event("ADDED", Object("c", 6));
  Start({ListOf(5, ""), std::string(kStreamHead) + Chunk(event.substr(0, 10)) +
                            Chunk(event.substr(10, 20)) + Chunk(event.substr(30))});
  Until("[] +c ");
}

TEST_F(WatchTest, ResumesFromTheLastBookmark) {
  Start({ListOf(5, ""),
         std::string(kStreamHead) + Chunk(Event("BOOKMARK", Object("", 42))) +
             std::string(kLastChunk),
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 43)))});
  Until("[] +x ");
  EXPECT_NE(WatchTarget(2).find("resourceVersion=42"), std::string::npos);
}

TEST_F(WatchTest, ResumesAfterTheConnectionBreaks) {
  Start({ListOf(5, ""), std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 6))) + "CLOSE",
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("y", 7)))});
  Until("[] +x !UNAVAILABLE +y ");
  EXPECT_NE(WatchTarget(2).find("resourceVersion=6"), std::string::npos);
}

TEST_F(WatchTest, ListsAgainWhenItsVersionIsGone) {
  const std::string gone = R"({"kind":"Status","code":410,"reason":"Expired","message":"too old"})";
  Start({ListOf(5, ""), std::string(kStreamHead) + Chunk(Event("ERROR", gone)),
         ListOf(9, Object("z", 9)), "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
         ListOf(10, Object("z", 9)), std::string(kStreamHead)});
  Until("[] !OUT_OF_RANGE [+z ] !OUT_OF_RANGE [+z ] ");
}

TEST_F(WatchTest, StartsTheListAnewWhenItsTokenExpiresBetweenPages) {
  Start({ListOf(5, Object("a", 1), "more"), "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
         ListOf(6, Object("b", 2)), std::string(kStreamHead)});
  Until("[+a !OUT_OF_RANGE [+b ] ");
  EXPECT_EQ(WatchTarget(2).find("continue"), std::string::npos);
}

TEST_F(WatchTest, ASilentStreamIsTakenForDead) {
  Start({ListOf(5, ""), std::string(kStreamHead),
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 6)))},
        {.stall = milliseconds(100)});
  Until("[] !DEADLINE_EXCEEDED +x ");
}

TEST_F(WatchTest, WaitsWhenToldSo) {
  Start({ListOf(5, ""), "HTTP/1.1 429 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 6)))});
  const MonotonicTime began = runner_.clock().Now();
  Until("[] !RESOURCE_EXHAUSTED +x ");
  EXPECT_GE(runner_.clock().Now() - began, std::chrono::seconds(1));
}

TEST_F(WatchTest, NonsenseIsTroubleAndNotTheEnd) {
  Start({"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad", ListOf(5, ""),
         std::string(kStreamHead) + Chunk("not json\n"),
         std::string(kStreamHead) + Chunk("{\"type\":\"ADDED\"}\n"),
         std::string(kStreamHead) + Chunk(std::string(5000, 'x')),
         std::string(kStreamHead) + Chunk(Event("ADDED", Object("x", 6)))},
        {.max_event = 4096});
  Until("!INTERNAL [] !INVALID_ARGUMENT !INVALID_ARGUMENT !RESOURCE_EXHAUSTED +x ");
}

TEST_F(WatchTest, ADelegateMayDestroyTheWatch) {
  destroy_after_ = 2;
  Start({ListOf(5, Object("a", 1)),
         std::string(kStreamHead) +
             Chunk(Event("ADDED", Object("b", 6)) + Event("ADDED", Object("c", 7)))});
  Until("[+a ] +b ");
  runner_.RunFor(milliseconds(50));
  EXPECT_EQ(log_, "[+a ] +b ");
}

TEST_F(WatchTest, ADelegateMayDestroyTheWatchInTheMiddleOfAList) {
  destroy_after_ = 1;
  Start({ListOf(5, Object("a", 1) + "," + Object("b", 2))});
  Until("[+a ");
  EXPECT_EQ(log_, "[+a ");
}

}  // namespace
}  // namespace tessera::kube
