// SPDX-License-Identifier: Apache-2.0
#include "src/console/pod_run.h"

#include <gtest/gtest.h>

#include <optional>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::console {
namespace {

Json RunOfStatus(const std::string& status) {
  return RunOf(
      ParseJson(
          R"({"metadata":{"namespace":"a","name":"p","creationTimestamp":"2026-01-01T00:00:00Z"},
                             "spec":{"nodeName":"n1"},"status":)" +
          status + "}")
          .value());
}

TEST(PodRunTest, AContainerSaysWhyItWaits) {
  const Json run = RunOfStatus(R"({"phase":"Pending","containerStatuses":[
      {"name":"main","ready":false,"restartCount":0,
       "state":{"waiting":{"reason":"ImagePullBackOff","message":"Back-off pulling image"}}}]})");
  EXPECT_EQ(run.StringAt("phase").value(), "Pending");
  EXPECT_EQ(run.Find("containers")->items().at(0).Serialize(),
            R"({"name":"main","ready":false,"restarts":0,"state":"waiting",)"
            R"("reason":"ImagePullBackOff","message":"Back-off pulling image"})");
}

TEST(PodRunTest, ACrashLoopShowsItsRestartsAndTheLastExit) {
  const Json run = RunOfStatus(R"({"phase":"Running",
      "initContainerStatuses":[{"name":"prepare","ready":true,"restartCount":1,
        "state":{"terminated":{"exitCode":0,"reason":"Completed"}}}],
      "containerStatuses":[{"name":"main","ready":false,"restartCount":4,
        "state":{"waiting":{"reason":"CrashLoopBackOff"}},
        "lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]})");
  EXPECT_EQ(run.IntAt("restarts").value(), 5);
  EXPECT_EQ(run.Find("containers")->items().at(0).Serialize(),
            R"({"name":"prepare","ready":true,"restarts":1,"init":true,"state":"terminated",)"
            R"("reason":"Completed","exit":0})");
  EXPECT_EQ(run.Find("containers")->items().at(1).Serialize(),
            R"({"name":"main","ready":false,"restarts":4,"state":"waiting",)"
            R"("reason":"CrashLoopBackOff","last":{"reason":"OOMKilled","exit":137}})");
}

TEST(PodRunTest, APodWithoutContainersSaysWhy) {
  const Json run = RunOfStatus(
      R"({"phase":"Failed","reason":"UnexpectedAdmissionError","message":"no GPU is left"})");
  EXPECT_EQ(run.StringAt("reason").value(), "UnexpectedAdmissionError");
  EXPECT_EQ(run.StringAt("message").value(), "no GPU is left");
  EXPECT_TRUE(run.Find("containers")->items().empty());
}

TEST(PodRunTest, EventsOfTheObjectAreListedNewestFirst) {
  const auto event = [](const std::string& about, const std::string& reason,
                        const std::string& times) {
    return ParseJson(R"({"involvedObject":{"name":")" + about + R"("},"reason":")" + reason +
                     R"(","type":"Warning","message":"m",)" + times + "}")
        .value();
  };
  std::vector<Json> events = {
      event("web-1", "Old", R"("lastTimestamp":"2026-01-01T00:00:01Z","count":3)"),
      event("web-api-1", "OfWebApi", R"("lastTimestamp":"2026-01-01T00:00:09Z")"),
      event("other-1", "Other", R"("lastTimestamp":"2026-01-01T00:00:09Z")"),
      event("web-1", "Series",
            R"("eventTime":"2026-01-01T00:00:00.1Z",
               "series":{"count":7,"lastObservedTime":"2026-01-01T00:00:05.2Z"})"),
      event("web-2", "Created", R"("metadata":{"creationTimestamp":"2026-01-01T00:00:02Z"})")};
  const Json all = EventsOf(events, "web-");
  std::string seen;
  for (const Json& one : all.items()) {
    seen += fmt::format("{}×{} ", one.StringAt("reason").value(), one.IntAt("count").value());
  }
  EXPECT_EQ(seen, "Series×7 Created×1 Old×3 ");
  for (size_t i = 0; i < 2 * kMaxEvents; ++i) {
    events.push_back(event("web-3", "More", R"("lastTimestamp":"2026-01-02T00:00:00Z")"));
  }
  EXPECT_EQ(EventsOf(events, "web-").items().size(), kMaxEvents);
}

TEST(PodRunTest, EventsOfADeploymentAreReadToTheLastPage) {
  net::testing::TestRunner runner;
  net::IoThread io;
  kube::testing::FakeApiServer server{io, runner};
  const auto session = std::make_shared<WebSession>();
  session->client = std::make_unique<kube::Client>(io, runner, server.config(),
                                                   kube::ClientOptions{.max_attempts = 1});
  for (int i = 0; i < 1200; ++i) {
    const std::string about = i == 1199 ? "web-1" : "other-1";
    server.Put(fmt::format("/api/v1/namespaces/a/events/e{:04}", i),
               ParseJson(fmt::format(
                             R"({{"metadata":{{"name":"e{:04}","namespace":"a"}},"reason":"Quota",)"
                             R"("involvedObject":{{"kind":"ReplicaSet","name":"{}"}}}})",
                             i, about))
                   .value());
  }
  std::optional<Result<Json>> answer;
  const RunReader reader(session, {.ns = "a", .deployment = "web", .selector = "app=web"},
                         [&](Result<Json> got) { answer = std::move(got); });
  ASSERT_TRUE(runner.RunUntil([&] { return answer.has_value(); }));
  ASSERT_TRUE(answer->ok()) << answer->status().ToString();
  const Json::Array& events = (*answer)->Find("events")->items();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].StringAt("about").value(), "web-1");
}

}  // namespace
}  // namespace tessera::console
