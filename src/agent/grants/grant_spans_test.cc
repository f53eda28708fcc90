// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_spans.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/agent/grants/testing/grants_fixture.h"

namespace tessera::agent {
namespace {

using std::chrono::seconds;

class GrantSpansTest : public GrantsFixture {
 protected:
  // A request as the grant socket passes it on.
  void RequestTraced(const std::string& pod, std::vector<grant::Token> tokens,
                     const std::string& container = "main") {
    const grant::GrantRequest request{.pod_uid = Uid("uid-" + pod),
                                      .pod_namespace = "default",
                                      .pod_name = pod,
                                      .container = container,
                                      .tokens = std::move(tokens)};
    service_->Handle(
        request,
        WithSpans([this](trace::PodSpan span) { spans_.push_back(std::move(span)); },
                  {&runner_.clock(), &signer_, &*ledger_, &pods_}, request,
                  [this](const Result<grant::Grant>& reply) { answer_ = reply.status(); }));
    runner_.RunUntilIdle();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const trace::PodSpan& span : spans_) names.push_back(span.name);
    std::sort(names.begin(), names.end());
    return names;
  }
  const trace::PodSpan& SpanOf(const std::string& name) const {
    return *std::ranges::find(spans_, name, &trace::PodSpan::name);
  }

  std::vector<trace::PodSpan> spans_;
  Status answer_;
};

TEST_F(GrantSpansTest, TheStartOfAContainerHasASpanForEachStep) {
  PodInfo pod = FakeApiPods::Make("train", {{"main", {{kGpu, "1"}}}});
  pod.created = runner_.clock().WallNow();
  const WallTime created = pod.created;
  pods_.Set(pod);
  runner_.AdvanceTimeAndRun(seconds(1));
  const grant::Token token = Token(kGpu, 1);
  const WallTime allocated = runner_.clock().WallNow();
  runner_.AdvanceTimeAndRun(seconds(2));
  RequestTraced("train", {token});
  ASSERT_TRUE(answer_.ok()) << answer_.ToString();
  EXPECT_EQ(Names(), (std::vector<std::string>{"allocate", "grant", "pod"}));
  const trace::PodSpan& allocate = SpanOf("allocate");
  EXPECT_EQ(allocate.start, allocated);
  EXPECT_EQ(allocate.end - allocate.start, seconds(2));
  EXPECT_EQ(allocate.attributes[0].second, kGpu);
  EXPECT_EQ(SpanOf("grant").attributes[0].second, "GPU-0");
  EXPECT_EQ(SpanOf("grant").subject.container, "main");
  EXPECT_EQ(SpanOf("pod").start, created);
  EXPECT_TRUE(SpanOf("pod").root);
}

TEST_F(GrantSpansTest, OnlyTheFirstContainerEndsTheStartOfThePod) {
  pods_.Set(FakeApiPods::Make("train", {{"main", {{kGpu, "1"}}}, {"side", {{kMem, "4"}}}}));
  RequestTraced("train", {Token(kGpu, 1)});
  RequestTraced("train", {Token(kMem, 4)}, "side");
  EXPECT_EQ(Names(), (std::vector<std::string>{"allocate", "allocate", "grant", "grant", "pod"}));
}

TEST_F(GrantSpansTest, ARejectedRequestIsAFailedGrant) {
  pods_.Set(FakeApiPods::Make("train", {{"main", {{kGpu, "1"}}}}));
  RequestTraced("train", {{grant::TokenVariable(kGpu), "v1:forged"}});
  EXPECT_FALSE(answer_.ok());
  ASSERT_EQ(Names(), std::vector<std::string>{"grant"});
  EXPECT_EQ(spans_[0].status.code(), answer_.code());
}

}  // namespace
}  // namespace tessera::agent
