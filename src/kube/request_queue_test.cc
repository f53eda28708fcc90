// SPDX-License-Identifier: Apache-2.0
#include "src/kube/request_queue.h"

#include <gtest/gtest.h>

#include <list>
#include <map>
#include <vector>

namespace tessera::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A transport whose responses the test triggers.
class FakeTransport : public ApiTransport {
 public:
  struct Sent {
    net::Request request;
    OnResponse on_done;
    bool cancelled = false;
  };

  Operation Send(net::Request request, const net::HttpClient::CallOptions&,
                 OnResponse on_done) override {
    sent.push_back(std::make_shared<Sent>(Sent{std::move(request), std::move(on_done)}));
    if (on_send) on_send(sent.back());
    return Operation([held = sent.back()] { held->cancelled = true; });
  }
  Operation Stream(net::Request, const net::Deadlines&, net::StreamHandler) override { return {}; }
  void SetCertificate(const std::string&, const std::string&) override {}

  std::vector<std::shared_ptr<Sent>> sent;
  std::function<void(const std::shared_ptr<Sent>&)> on_send;
};

net::Response EvictionForbidden(const std::string& level, int retry_after = 0) {
  net::Response answer{.status = 429,
                       .headers = {{"Content-Type", "application/json"},
                                   {"X-Kubernetes-PF-PriorityLevel-UID", level}},
                       .body = R"({"kind":"Status","code":429,"reason":"TooManyRequests",)"
                               R"("message":"Cannot evict pod"})"};
  if (retry_after > 0) answer.headers.Set("Retry-After", std::to_string(retry_after));
  return answer;
}

net::Response LevelRejected(const std::string& level) {
  net::Response answer = net::TextResponse(429, "Too many requests, please try again later.\n");
  answer.headers.Set("X-Kubernetes-PF-PriorityLevel-UID", level);
  answer.headers.Set("Retry-After", "1");
  return answer;
}

net::Response OkResponse(const std::string& level = "") {
  net::Response answer{.body = "{}"};
  if (!level.empty()) answer.headers.Set("X-Kubernetes-PF-PriorityLevel-UID", level);
  return answer;
}

class RequestQueueTest : public ::testing::Test {
 protected:
  struct Submission {
    std::optional<Result<net::Response>> answer;
    MonotonicTime answered_at{};
    Operation operation;
  };

  Submission& Submit(const std::string& target, const std::string& flow = "POST pods/binding",
                     bool repeatable = false, const BeforeSend& before_send = nullptr) {
    if (!queue_) {
      auto transport = std::make_unique<FakeTransport>();
      transport_ = transport.get();
      queue_ = std::make_unique<RequestQueue>(runner_, std::move(transport), config_, options_);
    }
    Submission& submitted = submitted_.emplace_back();
    submitted.operation = queue_->Submit(
        {.target = target}, flow, repeatable,
        [this, &submitted](const Result<net::Response>& answer) {
          submitted.answer = answer;
          submitted.answered_at = Now();
        },
        before_send);
    return submitted;
  }
  void Answer(size_t index, Result<net::Response> answer) {
    const auto sent = transport_->sent.at(index);
    if (!sent->cancelled) runner_.Post([sent, answer] { sent->on_done(answer); });
    runner_.RunUntilIdle();
  }
  Code CodeOf(const Submission& submitted) {
    if (!submitted.answer) return Code::kUnknown;
    return submitted.answer->status().code();
  }
  MonotonicTime Now() const { return runner_.clock().Now(); }
  size_t sent() const { return transport_->sent.size(); }
  std::string Target(size_t index) { return transport_->sent.at(index)->request.target; }

  FakeTaskRunner runner_;
  Config config_;
  ClientOptions options_;
  FakeTransport* transport_ = nullptr;
  std::unique_ptr<RequestQueue> queue_;
  std::list<Submission> submitted_;
};

const Status kRefused = Error(Code::kUnavailable, "connection refused");

// Sends ten bindings a second while the server is down for a minute. Each ends at its deadline at
// the latest, none is sent after its deadline, and soon after the server is back all succeed.
TEST_F(RequestQueueTest, BindingsRecoverAfterAnOutageWithABacklog) {
  options_.deadline = seconds(5);
  Submit("/first");
  bool down = false;
  std::map<std::string, MonotonicTime> made;
  transport_->on_send = [&](const std::shared_ptr<FakeTransport::Sent>& sent) {
    if (made.contains(sent->request.target)) {
      EXPECT_LT(Now(), made[sent->request.target] + options_.deadline);
    }
    // A connection attempt takes time, in which more than one new request arrives.
    runner_.PostDelayed(milliseconds(300), [&down, sent] {
      if (!sent->cancelled) sent->on_done(down ? Result<net::Response>(kRefused) : OkResponse());
    });
  };
  Answer(0, OkResponse());
  down = true;
  int failed_late = 0;
  for (int i = 0; i < 900; ++i) {
    if (i == 600) down = false;
    const std::string target = fmt::format("/{}", i);
    made[target] = Now();
    Submit(target);
    runner_.AdvanceTimeAndRun(milliseconds(100));
  }
  runner_.AdvanceTimeAndRun(seconds(6));
  int i = -1;
  for (const Submission& submitted : submitted_) {
    ASSERT_TRUE(submitted.answer.has_value()) << i;
    const MonotonicTime since = i < 0 ? MonotonicTime{} : made[fmt::format("/{}", i)];
    EXPECT_LE(submitted.answered_at, since + options_.deadline) << i;
    // These requests expire six seconds after the server is back or later; the last wait of the
    // lane is at most five.
    if (i >= 610) failed_late += submitted.answer->ok() ? 0 : 1;
    ++i;
  }
  EXPECT_EQ(failed_late, 0);
}

TEST_F(RequestQueueTest, AnExpiredRequestIsNeverSent) {
  options_.deadline = seconds(4);
  options_.max_in_flight = 1;
  const Submission& hangs = Submit("/1");
  const Submission& waits = Submit("/2");
  runner_.AdvanceTimeAndRun(seconds(4));
  EXPECT_EQ(CodeOf(hangs), Code::kDeadlineExceeded);
  EXPECT_EQ(CodeOf(waits), Code::kDeadlineExceeded);
  EXPECT_EQ(waits.answer->status().message(), "not sent within 4 s");
  EXPECT_EQ(waits.answered_at, MonotonicTime(seconds(4)));
  EXPECT_EQ(sent(), 1u);
  Submit("/3");
  EXPECT_EQ(sent(), 2u);
}

TEST_F(RequestQueueTest, TheErrorOfAnUnsentRequestContainsTheServersError) {
  options_.deadline = seconds(4);
  options_.max_attempts = 100;
  Submit("/1");
  Answer(0, kRefused);
  transport_->on_send = [&](const std::shared_ptr<FakeTransport::Sent>& sent) {
    runner_.Post([sent] { sent->on_done(kRefused); });
  };
  const Submission& behind = Submit("/2");
  Submit("/3", "GET pods", true);
  runner_.AdvanceTimeAndRun(seconds(4));
  ASSERT_TRUE(behind.answer.has_value());
  EXPECT_EQ(behind.answer->status().message(),
            "not sent within 4 s: the API server is unreachable: connection refused");
}

// If the oldest request of a backlog were the probe, it would expire before its response, and so
// would each later probe.
TEST_F(RequestQueueTest, TheNewestWaitingRequestProbesTheServer) {
  options_.deadline = seconds(4);
  Submit("/1");
  Answer(0, kRefused);
  Submit("/old");
  runner_.AdvanceTimeAndRun(milliseconds(50));
  Submit("/new");
  runner_.AdvanceTimeAndRun(milliseconds(200));
  ASSERT_EQ(sent(), 2u);
  EXPECT_EQ(Target(1), "/new");
  Answer(1, OkResponse());
  ASSERT_EQ(sent(), 3u);
  EXPECT_EQ(Target(2), "/old");
}

TEST_F(RequestQueueTest, ExpiredRequestsAreNotErrorsOfTheServer) {
  options_.deadline = seconds(5);
  options_.max_in_flight = 4;
  std::vector<const Submission*> hang;
  for (int i = 0; i < 4; ++i) hang.push_back(&Submit(fmt::format("/{}", i)));
  runner_.AdvanceTimeAndRun(seconds(5));
  for (const Submission* submitted : hang) EXPECT_EQ(CodeOf(*submitted), Code::kDeadlineExceeded);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(transport_->sent[i]->cancelled);
  // Four at once, without a wait.
  for (int i = 4; i < 8; ++i) Submit(fmt::format("/{}", i));
  EXPECT_EQ(sent(), 8u);
}

TEST_F(RequestQueueTest, OneRequestProbesAnUnreachableServer) {
  const Submission& hangs = Submit("/hangs");
  for (int i = 1; i < 4; ++i) Submit(fmt::format("/{}", i), "GET pods", true);
  for (int i = 1; i < 4; ++i) Answer(i, kRefused);
  EXPECT_EQ(sent(), 4u);
  // Other requests do not wait for an earlier request that hangs.
  runner_.AdvanceTimeAndRun(milliseconds(200));
  EXPECT_EQ(sent(), 5u);
  runner_.AdvanceTimeAndRun(seconds(10));
  EXPECT_EQ(sent(), 5u);
  Answer(4, OkResponse());
  EXPECT_EQ(sent(), 7u);
  EXPECT_FALSE(hangs.answer.has_value());
}

TEST_F(RequestQueueTest, ALoadBalancersErrorMeansAnUnreachableServer) {
  for (const int status : {502, 503}) {
    const size_t before = submitted_.empty() ? 0 : sent();
    Submit("/1", "GET pods", true);
    Answer(before, net::TextResponse(status, "no backend"));
    Submit("/2", "GET nodes", true);
    EXPECT_EQ(sent(), before + 1) << status;
    runner_.AdvanceTimeAndRun(milliseconds(200));
    ASSERT_EQ(sent(), before + 2) << status;
    Answer(before + 1, OkResponse());
    EXPECT_EQ(sent(), before + 3) << status;
    Answer(before + 2, OkResponse());
  }
  // Status 504 is about one request: the server is reachable.
  const size_t before = sent();
  Submit("/1", "GET pods", true);
  Answer(before, net::TextResponse(504, "timeout"));
  Submit("/2", "GET nodes", true);
  EXPECT_EQ(sent(), before + 2);
}

TEST_F(RequestQueueTest, OnlyAnUnreachableServerClosesTheLane) {
  for (const Code code : {Code::kUnavailable, Code::kDeadlineExceeded, Code::kUnauthenticated}) {
    const size_t before = submitted_.empty() ? 0 : sent();
    const Submission& submitted = Submit("/1");  // not repeatable
    Answer(before, Error(code, "no answer"));
    EXPECT_EQ(CodeOf(submitted), code);
    Submit("/2");
    EXPECT_EQ(sent(), before + 1) << InfoOf(code).name;
    runner_.AdvanceTimeAndRun(milliseconds(200));
    ASSERT_EQ(sent(), before + 2);
    Answer(before + 1, OkResponse());
  }
  // A retry does not fix a certificate.
  const size_t before = sent();
  const Submission& rejected = Submit("/3", "GET pods", true);
  Answer(before, Error(Code::kUnauthenticated, "the certificate is not accepted"));
  EXPECT_EQ(CodeOf(rejected), Code::kUnauthenticated);
  runner_.AdvanceTimeAndRun(milliseconds(200));
  Submit("/4");
  Answer(before + 1, Error(Code::kResourceExhausted, "the body is too long"));
  Submit("/5");
  EXPECT_EQ(sent(), before + 3);
}

TEST_F(RequestQueueTest, RetriesAServerErrorWithRetryAfter) {
  net::Response later = net::TextResponse(500, "etcd is slow");
  later.headers.Set("Retry-After", "2");
  const Submission& submitted = Submit("/1");
  Answer(0, later);
  const Submission& failed = Submit("/2", "GET pods", true);
  ASSERT_EQ(sent(), 2u);  // no other request waits
  Answer(1, net::TextResponse(500, "a webhook failed"));
  EXPECT_EQ(failed.answer->value().status, 500);
  runner_.AdvanceTimeAndRun(milliseconds(1999));
  EXPECT_EQ(sent(), 2u);
  runner_.AdvanceTimeAndRun(milliseconds(1));
  ASSERT_EQ(sent(), 3u);
  Answer(2, OkResponse());
  EXPECT_EQ(CodeOf(submitted), Code::kOk);
}

TEST_F(RequestQueueTest, AfterACancelledProbeAnotherRequestProbes) {
  Submit("/1", "GET pods", true);
  Answer(0, kRefused);
  Submission& second = Submit("/2");
  runner_.AdvanceTimeAndRun(milliseconds(200));
  ASSERT_EQ(sent(), 2u);
  EXPECT_EQ(Target(1), "/2");
  second.operation.Cancel();
  runner_.RunUntilIdle();
  ASSERT_EQ(sent(), 3u);
  EXPECT_EQ(Target(2), "/1");
}

TEST_F(RequestQueueTest, WaitsGrowButStayBelowTheRenewDeadlineOfALeader) {
  options_.max_attempts = 100;
  options_.deadline = seconds(600);
  Submit("/1", "GET leases", true);
  MonotonicTime last{};
  Duration longest{};
  transport_->on_send = [&](const std::shared_ptr<FakeTransport::Sent>& sent) {
    longest = std::max(longest, Now() - last);
    last = Now();
    runner_.Post([sent] { sent->on_done(kRefused); });
  };
  Answer(0, kRefused);
  runner_.AdvanceTimeAndRun(seconds(120));
  EXPECT_LE(longest, seconds(5));
  EXPECT_GT(longest, seconds(3));
  EXPECT_LT(sent(), 60u);
}

TEST_F(RequestQueueTest, Status429OfOneEvictionDelaysNoOtherEviction) {
  const Submission& evicted = Submit("/a", "POST pods/eviction");
  Answer(0, EvictionForbidden("workload-high"));
  for (int i = 0; i < 5; ++i) Submit(fmt::format("/{}", i), "POST pods/eviction");
  Submit("/bind");
  EXPECT_EQ(sent(), 7u);
  EXPECT_FALSE(evicted.answer.has_value());
  runner_.AdvanceTimeAndRun(milliseconds(200));
  ASSERT_EQ(sent(), 8u);
  EXPECT_EQ(Target(7), "/a");
}

TEST_F(RequestQueueTest, LongRetryAfterDelaysOnlyItsRequest) {
  options_.deadline = seconds(120);
  const Submission& evicted = Submit("/a", "POST pods/eviction");
  Answer(0, EvictionForbidden("workload-high", 90));
  const Submission& other = Submit("/b", "POST pods/eviction");
  ASSERT_EQ(sent(), 2u);
  Answer(1, OkResponse("workload-high"));
  EXPECT_EQ(CodeOf(other), Code::kOk);
  runner_.AdvanceTimeAndRun(seconds(89));
  EXPECT_EQ(sent(), 2u);
  runner_.AdvanceTimeAndRun(seconds(1));
  ASSERT_EQ(sent(), 3u);
  Answer(2, OkResponse());
  EXPECT_EQ(CodeOf(evicted), Code::kOk);
}

TEST_F(RequestQueueTest, RejectedPriorityLevelDelaysOnlyItsRequests) {
  options_.deadline = seconds(120);
  // Responses show the level of each flow.
  Submit("/1", "POST pods/binding");
  Submit("/2", "PATCH pods/");
  Submit("/3", "PUT leases/");
  Answer(0, OkResponse("workload"));
  Answer(1, OkResponse("workload"));
  Answer(2, OkResponse("leader-election"));
  Submit("/4", "POST pods/binding");
  Answer(3, LevelRejected("workload"));
  Submit("/5", "PATCH pods/");
  Submit("/6", "PUT leases/");
  ASSERT_EQ(sent(), 5u);
  EXPECT_EQ(Target(4), "/6");
  // One request of the level probes it, but not the request whose Retry-After is a second.
  runner_.AdvanceTimeAndRun(milliseconds(200));
  ASSERT_EQ(sent(), 6u);
  EXPECT_EQ(Target(5), "/5");
  Submit("/7", "POST pods/binding");
  EXPECT_EQ(sent(), 6u);
  Answer(5, OkResponse("workload"));
  ASSERT_EQ(sent(), 7u);
  EXPECT_EQ(Target(6), "/7");
  runner_.AdvanceTimeAndRun(milliseconds(800));
  ASSERT_EQ(sent(), 8u);
  EXPECT_EQ(Target(7), "/4");
}

TEST_F(RequestQueueTest, ARequestThatExpiresBehindARejectedLevelIsResourceExhausted) {
  options_.deadline = seconds(4);
  options_.max_attempts = 100;
  // With the jitter of this seed both requests still wait when they expire. With another seed, a
  // rejected request whose next attempt would be too late ends at once, with the server's 429.
  options_.seed = 1;
  const Submission& rejected = Submit("/1", "PATCH daemonsets/");
  transport_->on_send = [&](const std::shared_ptr<FakeTransport::Sent>& sent) {
    runner_.Post([sent] { sent->on_done(LevelRejected("workload")); });
  };
  Answer(0, LevelRejected("workload"));
  const Submission& unsent = Submit("/2", "PATCH daemonsets/");
  runner_.AdvanceTimeAndRun(seconds(4));
  for (const Submission* submitted : {&rejected, &unsent}) {
    ASSERT_TRUE(submitted->answer.has_value());
    EXPECT_EQ(CodeOf(*submitted), Code::kResourceExhausted)
        << submitted->answer->status().ToString();
  }
  EXPECT_EQ(unsent.answer->status().message(),
            "the API server has rejected the priority level of PATCH daemonsets/ for 4 s: Too many "
            "requests, please try again later. (HTTP 429 Too Many Requests)");
}

TEST_F(RequestQueueTest, AnUnansweredProbeOfALevelExceedsItsDeadline) {
  options_.deadline = seconds(4);
  options_.max_attempts = 100;
  Submit("/1", "PATCH daemonsets/");
  Answer(0, LevelRejected("workload"));
  runner_.AdvanceTimeAndRun(seconds(2));
  ASSERT_EQ(sent(), 2u) << "the probe, which gets no answer";
  runner_.AdvanceTimeAndRun(seconds(2));
  EXPECT_EQ(CodeOf(submitted_.front()), Code::kDeadlineExceeded);
}

TEST_F(RequestQueueTest, CallsBeforeSendAtEachAttempt) {
  bool leads = true;
  options_.max_in_flight = 1;
  const BeforeSend before_send = [&] {
    return leads ? Status() : Error(Code::kAborted, "not the leader");
  };
  Submit("/1", "POST pods/binding", false, before_send);
  const Submission& waits = Submit("/2", "POST pods/binding", false, before_send);
  leads = false;
  Answer(0, OkResponse());
  EXPECT_EQ(sent(), 1u);
  EXPECT_EQ(CodeOf(waits), Code::kAborted);
  leads = true;
  Submit("/3", "POST pods/binding", false, before_send);
  EXPECT_EQ(sent(), 2u);
}

// before_send must not be called while an owner cancels all its requests in its destructor.
TEST_F(RequestQueueTest, NothingIsSentWhileACallerCancels) {
  options_.max_in_flight = 1;
  bool cancelling = false;
  const BeforeSend before_send = [&] {
    EXPECT_FALSE(cancelling);
    return Status::Ok();
  };
  Submission& first = Submit("/1", "POST pods/binding", false, before_send);
  Submission& second = Submit("/2", "POST pods/binding", false, before_send);
  Submit("/3", "POST pods/binding", false, before_send);
  cancelling = true;
  first.operation.Cancel();
  second.operation.Cancel();
  cancelling = false;
  runner_.RunUntilIdle();
  ASSERT_EQ(sent(), 2u);
  EXPECT_EQ(Target(1), "/3");
}

TEST_F(RequestQueueTest, AMissingCredentialIsNotAnErrorOfTheServer) {
  config_.token_file = "/nowhere/token";
  const Submission& submitted = Submit("/1", "GET pods", true);
  EXPECT_FALSE(submitted.answer.has_value());
  runner_.RunUntilIdle();
  EXPECT_NE(submitted.answer->status().message().find("/nowhere/token"), std::string::npos);
  const Submission& again = Submit("/2", "GET pods", true);
  runner_.RunUntilIdle();
  EXPECT_TRUE(again.answer.has_value());
}

TEST_F(RequestQueueTest, ACallbackMayDestroyTheQueueWhileOthersExpire) {
  options_.deadline = seconds(1);
  Submit("/1");
  Operation destroys =
      queue_->Submit({.target = "/2"}, "GET pods", false, [this](const auto&) { queue_.reset(); });
  const Submission& after = Submit("/3");
  runner_.AdvanceTimeAndRun(seconds(2));
  EXPECT_EQ(queue_, nullptr);
  EXPECT_FALSE(after.answer.has_value());
}

}  // namespace
}  // namespace tessera::kube
