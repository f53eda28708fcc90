// SPDX-License-Identifier: Apache-2.0
#include "src/console/viewers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "api/names.h"
#include "src/base/clock.h"
#include "src/device/assignment.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/ledger.h"
#include "src/ledger/testing/objects.h"
#include "src/net/http_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::console {
namespace {

size_t CountOf(std::string_view what, std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

class ViewersTestBase : public ::testing::Test, private ClusterModel::Delegate {
 protected:
  void Start(ModelOptions options = {}) {
    auto web = net::HttpServer::Start(
        io_, runner_, {.address = {.host = "127.0.0.1"}},
        [this](const net::Request&, const net::HttpServer::Reply& reply) {
          net::Response response{200, {{"Content-Type", "text/event-stream"}}, ""};
          response.stream = stream_;
          reply(std::move(response));
        });
    ASSERT_TRUE(web.ok()) << web.status().ToString();
    web_ = *std::move(web);
    client_ =
        std::make_unique<kube::Client>(io_, runner_, api_.config(), kube::ClientOptionsFor("test"));
    model_ = std::make_unique<ClusterModel>(*client_, std::move(options),
                                            static_cast<ClusterModel::Delegate&>(*this));
    viewers_ = std::make_unique<Viewers>(io_, runner_, *model_, metrics_);
  }
  void OnChanges(const ClusterModel::Changes& changes) override { viewers_->OnChanges(changes); }
  void OnState() override { viewers_->OnState(); }

  static std::shared_ptr<WebSession> SessionOf(const std::string& user) {
    auto session = std::make_shared<WebSession>();
    session->user = user;
    return session;
  }
  // What the client of `stream_` receives, until that has `count` events or the stream ends.
  std::string Receive(std::string_view event, size_t count) {
    net::testing::RawClient client(web_->address());
    client.Send("GET / HTTP/1.1\r\n\r\n");
    std::string got;
    std::atomic<bool> done = false;
    std::thread reader([&] {
      while (CountOf(event, got) < count) {
        const std::string more = client.Receive(1 << 20);
        if (more.empty()) break;
        got += more;
      }
      done = true;
    });
    const bool arrived = runner_.RunUntil([&] { return done.load(); });
    client.ShutdownWrite();  // ends a stream that lacks events
    reader.join();
    EXPECT_TRUE(arrived) << "received " << CountOf(event, got) << " of " << count;
    return got;
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::shared_ptr<net::StreamSink> stream_;
  kube::testing::FakeApiServer api_{io_, runner_};
  std::unique_ptr<net::HttpServer> web_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<ClusterModel> model_;
  ConsoleMetrics metrics_;
  std::unique_ptr<Viewers> viewers_;
};

// Viewers of a cluster that is not read yet: its API server never answers.
class ViewersTest : public ViewersTestBase {
 protected:
  void SetUp() override {
    api_.SetFault([](const net::Request&, const net::HttpServer::Reply&) { return true; });
    Start();
  }
};

TEST_F(ViewersTest, ViewersGetBeatsWhileNothingChanges) {
  const auto stream = viewers_->Add(SessionOf("ada"));
  ASSERT_TRUE(stream.ok());
  stream_ = *stream;
  EXPECT_NE(Receive("event: beat\ndata: {}\n\n", 1).find("event: beat"), std::string::npos);
}

// Viewers of a cluster whose nodes have eight GPUs each. Pod "mine/a" has 0.3 of the first GPU of
// node n000, pod "theirs/b" half of the second.
class LargeClusterTest : public ViewersTestBase {
 protected:
  static constexpr size_t kNodes = 300;

  void StartCluster(OtherTenantsDetail others) {
    BeginToRead(others);
    ASSERT_TRUE(runner_.RunUntil([&] { return model_->synced(); }));
  }
  void BeginToRead(OtherTenantsDetail others) {
    std::vector<std::string> nodes;
    for (size_t i = 0; i < kNodes; ++i) {
      kube::NodeObject node = ledger::testing::GpuNode(fmt::format("n{:03}", i), 8);
      node.meta.resource_version = fmt::format("{}", i + 1);
      nodes.push_back(kube::testing::MessageOf(node));
    }
    api_.SetCollection("nodes", "Node", nodes);
    api_.SetCollection(
        "pods", "Pod",
        {PodOn("mine", "a", 0, MilliGpu(300)), PodOn("theirs", "b", 1, MilliGpu(500))});
    ModelOptions options;
    options.other_tenants = others;
    options.feed.quota_name.clear();
    Start(options);
  }
  static std::string PodOn(const std::string& ns, const std::string& name, int gpu,
                           MilliGpu compute) {
    kube::PodObject pod = ledger::testing::GpuPod(
        name, {{names::kResourceVcudaCore, fmt::format("{}", compute.count() / 10)},
               {names::kResourceVcudaMemory, "20"}});
    pod.meta.ns = ns;
    pod.meta.resource_version = "1";
    pod.phase = kube::PodPhase::kRunning;
    device::Assignment assignment;
    assignment.containers["main"] = {{ledger::testing::UuidOf("n000", gpu), compute, GiB(5)}};
    return kube::testing::MessageOf(ledger::testing::BoundPod(
        std::move(pod), "n000",
        {{std::string(names::kAnnotationAssignment), EncodeAssignment(assignment).value()}}));
  }
  static std::shared_ptr<WebSession> TenantOf(const std::string& ns) {
    auto session = SessionOf("tenant");
    session->rights.nodes = true;
    session->rights.namespaces = {ns};
    return session;
  }
  // The data of the events of a type.
  static std::vector<Json> DataOf(std::string_view type, std::string_view stream) {
    std::vector<Json> data;
    const std::string begin = fmt::format("event: {}\n", type);
    for (size_t at = stream.find(begin); at != stream.npos; at = stream.find(begin, at + 1)) {
      const size_t from = stream.find("data: ", at) + 6;
      // A chunk boundary may split the line; such an event is skipped.
      auto json = ParseJson(stream.substr(from, stream.find('\n', from) - from));
      if (json.ok()) data.push_back(*std::move(json));
    }
    return data;
  }
  // The first node as the user of the session sees it.
  Json FirstNode(const std::shared_ptr<WebSession>& session) {
    stream_ = viewers_->Add(session).value();
    return DataOf("snapshot", Receive("event: part", 1)).at(0).Find("nodes")->items().at(0);
  }
};

TEST_F(LargeClusterTest, ASnapshotComesInPartsThatHaveEachObjectOnce) {
  StartCluster(OtherTenantsDetail::kShares);
  auto session = SessionOf("ann");
  session->rights = {.nodes = true, .all_pods = true, .namespaces = {}};
  stream_ = viewers_->Add(session).value();
  const std::string got = Receive("\"more\":false", 1);
  std::vector<Json> parts = DataOf("snapshot", got);
  ASSERT_EQ(parts.size(), 1U);
  for (Json& part : DataOf("part", got)) parts.push_back(std::move(part));
  EXPECT_GE(parts.size(), 3U);
  std::vector<std::string> names;
  size_t pods = 0;
  for (const Json& part : parts) {
    EXPECT_LE(part.Serialize().size(), Viewers::kPartBytes + 4096);
    EXPECT_EQ(part.BoolAt("more").value(), &part != &parts.back());
    for (const Json& node : part.Find("nodes")->items()) {
      names.push_back(node.StringAt("name").value());
    }
    pods += part.Find("pods")->items().size();
  }
  EXPECT_EQ(names.size(), kNodes);
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(pods, 2U);
}

TEST_F(LargeClusterTest, AViewerFromBeforeTheClusterWasReadGetsItInParts) {
  BeginToRead(OtherTenantsDetail::kShares);
  stream_ = viewers_->Add(TenantOf("mine")).value();
  const std::string got = Receive("\"more\":false", 1);
  EXPECT_EQ(CountOf("event: snapshot\n", got), 1U);
  EXPECT_EQ(CountOf("event: change\n", got), 0U);
}

TEST_F(LargeClusterTest, ADownloadIsOneJsonObject) {
  StartCluster(OtherTenantsDetail::kShares);
  stream_ = viewers_->AddDownload(TenantOf("theirs")).value();
  std::string got = Receive("\r\n0\r\n\r", 1);
  // Without the frames of the chunks.
  std::string body;
  for (size_t at = got.find("\r\n\r\n") + 4; at < got.size();) {
    const size_t line = got.find("\r\n", at);
    const size_t size = std::stoul(got.substr(at, line - at), nullptr, 16);
    body += got.substr(line + 2, size);
    if (size == 0) break;
    at = line + 2 + size + 2;
  }
  const auto json = ParseJson(body);
  ASSERT_TRUE(json.ok()) << json.status().ToString() << " " << body.substr(0, 200);
  EXPECT_EQ(json->Find("nodes")->items().size(), kNodes);
  ASSERT_EQ(json->Find("pods")->items().size(), 1U);
  EXPECT_EQ(json->Find("pods")->items()[0].StringAt("name").value(), "b");
}

TEST_F(LargeClusterTest, SumsHideTheHoldersOfOtherNamespaces) {
  StartCluster(OtherTenantsDetail::kSums);
  const Json node = FirstNode(TenantOf("theirs"));
  const auto& gpus = node.Find("gpus")->items();
  EXPECT_EQ(gpus[0].IntAt("usedMilli").value(), 300);
  EXPECT_EQ(gpus[0].Find("held")->Serialize(), "[]");
  EXPECT_EQ(gpus[1].Find("held")->Serialize(), R"([["uid-b",500,5368709120]])");
}

TEST_F(LargeClusterTest, SharesOfOtherTenantsHaveNoNamespace) {
  StartCluster(OtherTenantsDetail::kShares);
  EXPECT_EQ(FirstNode(TenantOf("theirs")).Find("gpus")->items()[0].Find("held")->Serialize(),
            R"([["uid-a",300,5368709120]])");
}

TEST_F(LargeClusterTest, NamespacesOfOtherTenantsAreShownIfTheOptionSaysSo) {
  StartCluster(OtherTenantsDetail::kNamespaces);
  EXPECT_EQ(FirstNode(TenantOf("theirs")).Find("gpus")->items()[0].Find("held")->Serialize(),
            R"([["uid-a",300,5368709120,"mine"]])");
}

// Node "n" and its pod "ns/a".
class ChangingClusterTest : public ViewersTestBase {
 protected:
  static constexpr const char* kNodePath = "/api/v1/nodes/n";
  static constexpr const char* kPodPath = "/api/v1/namespaces/ns/pods/a";

  void SetUp() override {
    api_.Put(kNodePath, ObjectOf(ledger::testing::GpuNode("n", 2)));
    PutPod("first");
    ModelOptions options;
    options.feed.quota_name.clear();
    options.probe_interval = std::chrono::milliseconds(200);
    Start(options);
    ASSERT_TRUE(Until([&] { return model_->synced(); }));
  }
  template <typename T>
  static Json ObjectOf(const T& object) {
    return ParseJson(kube::testing::JsonOf(object)).value();
  }
  void PutPod(const std::string& uid) {
    const SystemClock clock;
    const auto ledger = ledger::ClusterLedger::Make({}, &clock).value();
    ledger->SetNode(ledger::testing::GpuNode("n", 2));
    kube::PodObject pod = ledger::testing::Whole("a");
    pod.meta.uid = Uid(uid);
    api_.Put(kPodPath, ObjectOf(ledger::testing::Bind(*ledger, pod, "n")));
  }
  template <typename Done>
  bool Until(const Done& done) {
    return runner_.RunUntil(done);
  }
  bool NodeShows(const std::string& uid) {
    model_->Flush();
    return model_->nodes().contains("n") &&
           model_->NodeText("n", nullptr).find(uid) != std::string::npos;
  }
};

TEST_F(ChangingClusterTest, PodsAndNodesThatAreDeletedDisappear) {
  EXPECT_TRUE(NodeShows("first"));
  api_.Remove(kPodPath);
  EXPECT_TRUE(Until([&] { return model_->pods().empty(); }));
  EXPECT_FALSE(NodeShows("first"));
  api_.Remove(kNodePath);
  EXPECT_TRUE(Until([&] { return model_->nodes().empty(); }));
}

TEST_F(ChangingClusterTest, ADeletionDuringAnOutageIsNoticedAfterIt) {
  api_.Refuse("pods", 410);
  api_.Remove(kPodPath);
  PutPod("second");
  api_.EndWatches();
  api_.Allow("pods");
  EXPECT_TRUE(Until([&] { return NodeShows("second"); }));
  EXPECT_FALSE(NodeShows("first"));
  EXPECT_EQ(model_->pods().size(), 1U);
}

TEST_F(ChangingClusterTest, AServerThatHangsIsNoticedAlthoughItsWatchesStayOpen) {
  api_.SetFault([](const net::Request&, const net::HttpServer::Reply&) { return true; });
  EXPECT_TRUE(Until([&] { return model_->outage().has_value(); }));
  api_.SetFault(nullptr);
  EXPECT_TRUE(Until([&] { return !model_->outage(); }));
}

TEST_F(ViewersTest, ASlowViewerGetsTheStateThatItMissed) {
  stream_ = viewers_->Add(SessionOf("ann")).value();
  const std::string event = "event: state\nid: 0\ndata: {\"synced\":false}\n\n";
  const size_t fit = Viewers::kQueueBytes / event.size();
  for (size_t i = 0; i < fit + 10; ++i) viewers_->OnState();
  const std::string got = Receive("event: state", fit + 1);
  EXPECT_EQ(CountOf(event, got), fit + 1);
}

TEST_F(ViewersTest, TheEndOfASessionEndsItsStreams) {
  const auto session = SessionOf("ann"), other = SessionOf("ann");
  const auto kept = viewers_->Add(other).value();
  stream_ = viewers_->Add(session).value();
  session->ended = true;
  viewers_->OnSession(*session);
  const std::string got = Receive("\r\n0\r\n\r", 1);
  EXPECT_EQ(CountOf("event: end", got), 1U);
  EXPECT_TRUE(runner_.RunUntil([&] { return viewers_->size() == 1; }));
}

TEST_F(ViewersTest, AUserHasALimitedNumberOfStreams) {
  std::vector<std::shared_ptr<net::StreamSink>> streams;
  const auto session = SessionOf("ann");
  for (size_t i = 0; i < Viewers::kMaxStreamsPerUser; ++i) {
    streams.push_back(viewers_->Add(i == 0 ? session : SessionOf("ann")).value());
  }
  const auto rejected = viewers_->Add(SessionOf("ann"));
  EXPECT_EQ(rejected.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(rejected.status().message(), "you have 20 open pages: close some");
  EXPECT_TRUE(viewers_->Add(SessionOf("bob")).ok());
  session->ended = true;
  viewers_->OnSession(*session);
  EXPECT_TRUE(viewers_->Add(SessionOf("ann")).ok());
}

}  // namespace
}  // namespace tessera::console
