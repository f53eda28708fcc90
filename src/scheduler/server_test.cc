// SPDX-License-Identifier: Apache-2.0
// Tests the verbs behind a real socket: malformed requests must not affect other callers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "api/names.h"
#include "src/ledger/testing/objects.h"
#include "src/net/testing/loopback.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/scheduler.h"
#include "src/scheduler/testing/scheduler_harness.h"
#include "src/scheduler/verbs.h"

namespace tessera::scheduler {
namespace {

using ledger::testing::GpuNode;
using net::testing::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    d_.AddNode(GpuNode("n1", 2));
    active_term_ = {d_.extender.get(), d_.ledger.get()};
    AddVerbs([this]() -> Result<ActiveTerm> { return active_term_; }, d_.clock, d_.metrics, nullptr,
             &router_);
    net::HttpServer::Options options;
    options.address.host = "127.0.0.1";
    options.limits = LimitsOfVerbs(SchedulerOptions().max_request_bytes);
    server_ = net::HttpServer::Start(io_, runner_, options, router_.AsHandler()).value();
  }
  // Runs on its own thread, because the test uses the runner.
  std::string Exchange(const std::function<std::string(RawClient&)>& talk) {
    std::string answer;
    std::atomic<bool> done = false;
    std::thread caller([&] {
      RawClient client(server_->address());
      answer = talk(client);
      done = true;
    });
    EXPECT_TRUE(runner_.RunUntil([&] { return done.load(); }, std::chrono::seconds(60)));
    caller.join();
    return answer;
  }
  static std::string Post(std::string_view verb, std::string_view body) {
    return fmt::format("POST /v1/extender/{} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                       verb, body.size(), body);
  }
  std::string SendFilter() {
    return Exchange([](RawClient& client) {
      client.Send(kFilter);
      return client.Receive();
    });
  }
  inline static const std::string kFilter =
      Post("filter", R"({"Pod":{"metadata":{"name":"a","uid":"u"},"spec":{"containers":[)"
                     R"({"name":"m","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}},)"
                     R"("NodeNames":["n1"]})");

  testing::SchedulerHarness d_;
  ActiveTerm active_term_;
  net::testing::TestRunner runner_;
  net::IoThread io_;
  Router router_;
  std::unique_ptr<net::HttpServer> server_;
};

TEST_F(ServerTest, ARequestOf50MibIsRejectedUnread) {
  const std::string answer = Exchange([](RawClient& client) {
    client.Send(
        "POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 52428800\r\n\r\n{");
    return client.Receive();
  });
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(SendFilter(), HasSubstr(R"("NodeNames":["n1"])"));
}

TEST_F(ServerTest, RejectsARequestWithoutALength) {
  const std::string answer = Exchange([](RawClient& client) {
    client.Send(
        "POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
    for (int i = 0; i < 50; ++i) client.Send(chunk);
    return client.Receive();
  });
  EXPECT_THAT(answer, ::testing::AnyOf(StartsWith("HTTP/1.1 413 "), ""));
  EXPECT_THAT(SendFilter(), HasSubstr(R"("NodeNames":["n1"])"));
}

// kube-scheduler waits for each binding on its own connection, and filters the next pod meanwhile.
TEST_F(ServerTest, SlowApiServerDelaysNoDecision) {
  constexpr int kBindings = 100;
  constexpr Duration kDelay = std::chrono::seconds(4);
  net::HttpServer::Options slow;
  slow.address.host = "127.0.0.1";
  slow.limits.max_connections = 2 * kBindings;
  const auto api_server = net::HttpServer::Start(
      io_, runner_, slow, [this, kDelay](const net::Request&, net::HttpServer::Reply reply) {
        runner_.PostDelayed(kDelay, [reply = std::move(reply)] {
          reply(net::TextResponse(201, R"({"kind":"Status","status":"Success"})"));
        });
      });
  kube::Client client(io_, runner_, {.server = {.address = (*api_server)->address()}},
                      {.deadline = std::chrono::seconds(10), .max_in_flight = kMaxBindsInFlight});
  KubeBindingApi api(client);
  Binder binder(*d_.ledger, api, d_.clock, [] { return true; });
  Extender extender(
      *d_.ledger, binder, d_.clock, d_.metrics,
      [this](const std::string& key) { return d_.api.Find(key); },
      [](const kube::PodObject&, kube::EventKind, std::string_view, const std::string&) {}, {});
  active_term_ = {&extender, d_.ledger.get()};
  std::vector<std::string> bindings;
  for (int i = 0; i < kBindings; ++i) {
    if (i % 8 == 0) d_.AddNode(GpuNode(fmt::format("big{}", i), 8));
    const std::string node = fmt::format("big{}", i / 8 * 8);
    const kube::PodObject pod =
        ledger::testing::GpuPod(fmt::format("p{}", i), {{names::kResourceGpu, "1"}});
    d_.AddPod(pod);
    extender.Filter(d_.Args(pod, {node}));
    bindings.push_back(Post("bind", fmt::format(R"({{"PodName":"{}","PodNamespace":"{}",)"
                                                R"("PodUID":"{}","Node":"{}"}})",
                                                pod.meta.name, pod.meta.ns, pod.meta.uid, node)));
  }
  std::vector<std::string> answers(kBindings);
  std::string filtered;
  std::chrono::steady_clock::duration waited{}, all{};
  std::atomic<bool> done = false;
  std::thread caller([&] {
    const auto began = std::chrono::steady_clock::now();
    std::vector<std::unique_ptr<RawClient>> waiting;
    for (const std::string& binding : bindings) {
      waiting.push_back(std::make_unique<RawClient>(server_->address()));
      waiting.back()->Send(binding);
    }
    RawClient next(server_->address());
    const auto sent_at = std::chrono::steady_clock::now();
    next.Send(kFilter);
    filtered = next.Receive();
    waited = std::chrono::steady_clock::now() - sent_at;
    for (int i = 0; i < kBindings; ++i) answers[i] = waiting[i]->Receive();
    all = std::chrono::steady_clock::now() - began;
    done = true;
  });
  EXPECT_TRUE(runner_.RunUntil([&] { return done.load(); }, std::chrono::seconds(60)));
  caller.join();
  EXPECT_THAT(filtered, HasSubstr(R"("NodeNames":["n1"])"));
  EXPECT_LT(waited, kDelay / 2);
  for (const std::string& answer : answers) ASSERT_THAT(answer, HasSubstr(R"({"Error":""})"));
  // Bindings do not wait for each other, because kube-scheduler gives up after five seconds.
  EXPECT_LT(all, 2 * kDelay);
  active_term_ = {d_.extender.get(), d_.ledger.get()};
}

// Sends 45 MiB of whole nodes, like kube-scheduler without nodeCacheCapable.
TEST_F(ServerTest, FiveThousandWholeNodesAreAnsweredAndTheNextRequestToo) {
#if defined(__SANITIZE_THREAD__)
  constexpr int kNodes = 500;  // the server's deadline for a request is ten seconds
#else
  constexpr int kNodes = 5000;
#endif
  std::string nodes;
  for (int i = 0; i < kNodes; ++i) {
    nodes += fmt::format(R"({{"metadata":{{"name":"n{}"}},"status":{{"x":"{}"}}}},)", i,
                         std::string(9000, 'x'));
  }
  nodes.back() = ']';
  const std::string body =
      R"({"Pod":{"metadata":{"name":"a","uid":"u"}},"Nodes":{"items":[)" + nodes + "}}";
  const std::string answer = Exchange([&](RawClient& client) {
    client.Send(Post("filter", body));
    return client.Receive(64);
  });
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(SendFilter(), HasSubstr(R"("NodeNames":["n1"])"));
}

TEST_F(ServerTest, MillionsOfNamesAreRejected) {
  std::string names;
  while (names.size() < (40u << 20)) names += ",\"a\"";
  const std::string answer = Exchange([&](RawClient& client) {
    client.Send(Post("filter", R"({"Pod":{"metadata":{"name":"a","uid":"u"}},"NodeNames":["n1")" +
                                   names + "]}"));
    return client.Receive();
  });
  EXPECT_THAT(answer, HasSubstr("more than 50000 nodes"));
}

}  // namespace
}  // namespace tessera::scheduler
