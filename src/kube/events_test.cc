// SPDX-License-Identifier: Apache-2.0
#include "src/kube/events.h"

#include <gtest/gtest.h>

#include "src/kube/binding.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube {
namespace {

// Records the writes that the API server receives.
class EventsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.OnRequest([this](const net::Request& request) {
      lines_.push_back(request.method + " " + std::string(request.path()));
      bodies_.push_back(ParseJson(request.body).value());
    });
    recorder_ = std::make_unique<EventRecorder>(
        client_,
        EventRecorder::Options{.component = "c", .instance = "i", .max_similar = 2, .burst = 5},
        [this](const Status& status) { error_ = status; });
  }
  void RecordEvent(const std::string& message, const std::string& pod = "p") {
    recorder_->Record({.kind = "Pod", .ns = "n", .name = pod, .uid = Uid("u")}, EventKind::kWarning,
                      "NoGpu", message);
  }
  // Waits for `count` writes.
  void WaitForWrites(size_t count) {
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
  Status error_;
  testing::FakeApiServer server_{io_, runner_};
  Client client_{io_, runner_, server_.config(), ClientOptions{}};
  std::unique_ptr<EventRecorder> recorder_;
};

TEST_F(EventsTest, ARepeatedEventIncreasesTheCount) {
  RecordEvent("full");
  WaitForWrites(1);
  EXPECT_EQ(lines_[0], "POST /api/v1/namespaces/n/events");
  EXPECT_EQ(Text(0, "reason"), "NoGpu");
  EXPECT_EQ(Text(0, "type"), "Warning");
  RecordEvent("full");
  WaitForWrites(2);
  const std::string name = bodies_[0].Find("metadata")->StringAt("name").value();
  EXPECT_EQ(lines_[1], "PATCH /api/v1/namespaces/n/events/" + name);
  EXPECT_EQ(bodies_[1].IntAt("count").value(), 2);
}

TEST_F(EventsTest, AnExpiredEventIsCreatedAgain) {
  RecordEvent("full");
  WaitForWrites(1);
  server_.Remove("/api/v1/namespaces/n/events/" +
                 bodies_[0].Find("metadata")->StringAt("name").value());
  RecordEvent("full");
  WaitForWrites(3);
  EXPECT_EQ(lines_[2], "POST /api/v1/namespaces/n/events");
  EXPECT_EQ(bodies_[2].IntAt("count").value(), 2);
  EXPECT_TRUE(error_.ok());
}

TEST_F(EventsTest, SimilarEventsAreAggregated) {
  for (const char* message : {"a", "b", "c", "d"}) RecordEvent(message);
  WaitForWrites(4);
  EXPECT_EQ(Text(2, "message"), "(combined from similar events): c");
  EXPECT_EQ(Text(3, "message"), "(combined from similar events): d");
  EXPECT_TRUE(lines_[3].starts_with("PATCH"));
}

TEST_F(EventsTest, LimitsTheRateOfEventsOfOneObject) {
  for (int i = 0; i < 50; ++i) RecordEvent("full");
  RecordEvent("full", "other");
  WaitForWrites(6);
}

TEST_F(EventsTest, MessagesAreTruncatedBetweenCharacters) {
  RecordEvent(std::string(1023, 'x') + "\xc3\xa9");
  WaitForWrites(1);
  EXPECT_EQ(Text(0, "message"), std::string(1023, 'x'));
}

TEST_F(EventsTest, ReportsFailures) {
  server_.Refuse("events", 403);
  RecordEvent("full");
  ASSERT_TRUE(runner_.RunUntil([&] { return !error_.ok(); }));
  EXPECT_EQ(error_.code(), Code::kPermissionDenied);
}

TEST_F(EventsTest, ABindingHasUidNodeAndAnnotations) {
  std::optional<Status> done;
  const Operation operation = BindPod(client_, {"n", "p", Uid("u"), "node", {{"a", "b"}}},
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
