// SPDX-License-Identifier: Apache-2.0
#include "src/kube/events.h"

#include <gtest/gtest.h>

#include "src/kube/binding.h"
#include "src/net/http_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube {
namespace {

// A server that records writes.
class EventsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = net::HttpServer::Start(
        io_, runner_, {.address = {.host = "127.0.0.1"}},
        [this](const net::Request& request, const net::HttpServer::Reply& reply) {
          lines_.push_back(request.method + " " + std::string(request.path()));
          bodies_.push_back(ParseJson(request.body).value());
          const bool gone = gone_ && request.method == "PATCH";
          reply({gone ? 404 : status_, {{"Content-Type", "application/json"}}, "{}"});
        });
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    client_ = std::make_unique<Client>(
        io_, runner_, Config{.server = {.address = server_->address()}}, ClientOptions{});
    recorder_ = std::make_unique<EventRecorder>(
        *client_,
        EventRecorder::Options{.component = "c", .instance = "i", .max_similar = 2, .burst = 5},
        [this](const Status& status) { error_ = status; });
  }
  void Say(const std::string& message, const std::string& pod = "p") {
    recorder_->Record({.kind = "Pod", .ns = "n", .name = pod, .uid = Uid("u")}, EventKind::kWarning,
                      "NoGpu", message);
  }
  // Waits for `count` writes.
  void Until(size_t count) {
    ASSERT_TRUE(runner_.RunUntil([&] { return bodies_.size() >= count; }));
    runner_.RunFor(std::chrono::milliseconds(20));
    EXPECT_EQ(bodies_.size(), count);
  }
  std::string Text(size_t index, const char* key) {
    return bodies_.at(index).StringAt(key).value_or("");
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::vector<std::string> lines_;
  std::vector<Json> bodies_;
  bool gone_ = false;
  int status_ = 200;
  Status error_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<EventRecorder> recorder_;
};

TEST_F(EventsTest, TheSameThingAgainCountsUp) {
  Say("full");
  Until(1);
  EXPECT_EQ(lines_[0], "POST /api/v1/namespaces/n/events");
  EXPECT_EQ(Text(0, "reason"), "NoGpu");
  EXPECT_EQ(Text(0, "type"), "Warning");
  Say("full");
  Until(2);
  const std::string name = bodies_[0].Find("metadata")->StringAt("name").value();
  EXPECT_EQ(lines_[1], "PATCH /api/v1/namespaces/n/events/" + name);
  EXPECT_EQ(bodies_[1].IntAt("count").value(), 2);
}

TEST_F(EventsTest, AnEventThatHasGoneIsMadeAgain) {
  Say("full");
  Until(1);
  gone_ = true;
  Say("full");
  Until(3);
  EXPECT_EQ(lines_[2], "POST /api/v1/namespaces/n/events");
  EXPECT_EQ(bodies_[2].IntAt("count").value(), 2);
  EXPECT_TRUE(error_.ok());
}

TEST_F(EventsTest, ManyAlikeBecomeOne) {
  for (const char* message : {"a", "b", "c", "d"}) Say(message);
  Until(4);
  EXPECT_EQ(Text(2, "message"), "(combined from similar events): c");
  EXPECT_EQ(Text(3, "message"), "(combined from similar events): d");
  EXPECT_TRUE(lines_[3].starts_with("PATCH"));
}

TEST_F(EventsTest, LimitsTheRateOfEventsOfOneObject) {
  for (int i = 0; i < 50; ++i) Say("full");
  Say("full", "other");
  Until(6);
}

TEST_F(EventsTest, MessagesAreCutBetweenCharacters) {
  Say(std::string(1023, 'x') + "\xc3\xa9");
  Until(1);
  EXPECT_EQ(Text(0, "message"), std::string(1023, 'x'));
}

TEST_F(EventsTest, ReportsFailures) {
  status_ = 403;
  Say("full");
  ASSERT_TRUE(runner_.RunUntil([&] { return !error_.ok(); }));
  EXPECT_EQ(error_.code(), Code::kPermissionDenied);
}

TEST_F(EventsTest, ABindingCarriesUidNodeAndAnnotations) {
  std::optional<Status> done;
  const Operation operation = BindPod(*client_, {"n", "p", Uid("u"), "node", {{"a", "b"}}},
                                      [&](const Status& s) { done = s; });
  ASSERT_TRUE(runner_.RunUntil([&] { return done.has_value(); }));
  EXPECT_TRUE(done->ok());
  EXPECT_EQ(lines_[0], "POST /api/v1/namespaces/n/pods/p/binding");
  EXPECT_EQ(bodies_[0].Find("metadata")->Serialize(),
            R"({"name":"p","namespace":"n","uid":"u","annotations":{"a":"b"}})");
  EXPECT_EQ(bodies_[0].Find("target")->StringAt("name").value(), "node");
}

}  // namespace
}  // namespace tessera::kube
