// SPDX-License-Identifier: Apache-2.0
#include "src/console/viewers.h"

#include <gtest/gtest.h>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/http_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::console {
namespace {

size_t CountOf(std::string_view what, std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// Viewers of a cluster that is not read yet: its API server never answers.
class ViewersTest : public ::testing::Test, private ClusterModel::Delegate {
 protected:
  void SetUp() override {
    api_.SetFault([](const net::Request&, const net::HttpServer::Reply&) { return true; });
    auto web = net::HttpServer::Start(
        io_, runner_, {.address = {.host = "127.0.0.1"}},
        [this](const net::Request&, const net::HttpServer::Reply& reply) {
          net::Response response{200, {{"Content-Type", "text/event-stream"}}, ""};
          response.stream = stream_;
          reply(std::move(response));
        });
    ASSERT_TRUE(web.ok()) << web.status().ToString();
    web_ = *std::move(web);
    client_ = std::make_unique<kube::Client>(io_, runner_, api_.config(), kube::OptionsOf("test"));
    model_ = std::make_unique<ClusterModel>(*client_, ModelOptions{},
                                            static_cast<ClusterModel::Delegate&>(*this));
    viewers_ = std::make_unique<Viewers>(io_, runner_, *model_);
  }
  void OnChanges(const ClusterModel::Changes&) override {}
  void OnState() override {}

  static std::shared_ptr<WebSession> SessionOf(const std::string& user) {
    auto session = std::make_shared<WebSession>();
    session->user = user;
    return session;
  }
  // What the client of `stream_` receives, until it has so many events or the stream ends.
  std::string Receive(std::string_view event, size_t count) {
    net::testing::RawClient client(web_->address());
    client.Send("GET / HTTP/1.1\r\n\r\n");
    std::string got;
    std::atomic<bool> done = false;
    std::thread reader([&] {
      size_t counted = 0, searched = 0;
      while (counted < count) {
        const std::string more = client.Receive(1 << 20);
        if (more.empty()) break;
        got += more;
        const size_t end = got.rfind('\n');
        counted += CountOf(event, std::string_view(got).substr(searched, end - searched));
        searched = end;
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
  std::unique_ptr<Viewers> viewers_;
};

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

TEST_F(ViewersTest, APersonHasALimitedNumberOfStreams) {
  std::vector<std::shared_ptr<net::StreamSink>> streams;
  const auto session = SessionOf("ann");
  for (size_t i = 0; i < Viewers::kMostOfPerson; ++i) {
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
