// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/verbs.h"
#include "src/base/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "api/names.h"
#include "src/formats/json.h"
#include "src/ledger/testing/objects.h"
#include "src/scheduler/testing/scheduler_harness.h"

namespace tessera::scheduler {
namespace {

using ledger::testing::GpuNode;
using ledger::testing::GpuPod;
using ::testing::HasSubstr;
using testing::SchedulerHarness;
using ::testing::StartsWith;

class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    d.AddNode(GpuNode("n1", 2));
    d.AddNode(GpuNode("n2", 1));
    AddVerbs(
        [this]() -> Result<ActiveTerm> {
          if (!why_not.empty()) return Status(Code::kUnavailable, why_not);
          return ActiveTerm{d.extender.get(), d.ledger.get()};
        },
        d.clock, d.metrics, [this](trace::PodSpan span) { spans.push_back(std::move(span)); },
        &router);
  }
  net::Response Send(const std::string& method, const std::string& path, std::string body = "") {
    std::optional<net::Response> answer;
    router.Route({.method = method, .target = path, .body = std::move(body)},
                 [&answer](net::Response response) {
                   if (!answer) answer = std::move(response);
                 });
    d.api.Run();
    EXPECT_TRUE(answer) << method << " " << path;
    return answer.value_or(net::Response{.status = 0});
  }
  static std::string FilterBody(const std::string& gpus, const std::string& rest) {
    return R"({"Pod":{"metadata":{"name":"a","namespace":"ns","uid":"uid-a"},)"
           R"("spec":{"containers":[)"
           R"({"name":"main","resources":{"limits":{"nvidia.com/gpu":")" +
           gpus + R"("}}}]}},)" + rest + "}";
  }
  static std::string Binding(const std::string& uid, const std::string& node) {
    return fmt::format(R"({{"PodName":"a","PodNamespace":"ns","PodUID":"{}","Node":"{}"}})", uid,
                       node);
  }

  SchedulerHarness d;
  Router router;
  std::vector<trace::PodSpan> spans;
  std::string why_not;
};

TEST_F(VerbsTest, FilterAndBindAreTraced) {
  Send("POST", "/v1/extender/filter", FilterBody("2", R"("NodeNames":["n1","n2"])"));
  Send("POST", "/v1/extender/filter", FilterBody("8", R"("NodeNames":["n1","n2"])"));
  Send("POST", "/v1/extender/bind", Binding("uid-a", "n1"));
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].name, "filter");
  EXPECT_EQ(spans[0].subject.pod, Uid("uid-a"));
  EXPECT_EQ(spans[0].subject.name, "a");
  EXPECT_EQ(spans[0].attributes[1].second, "1") << "of two nodes only one has two GPUs";
  EXPECT_TRUE(spans[0].status.ok());
  EXPECT_EQ(spans[1].status.code(), Code::kResourceExhausted);
  EXPECT_EQ(spans[2].name, "bind");
  EXPECT_EQ(spans[2].attributes[0].second, "n1");
}

TEST_F(VerbsTest, FilterPrioritizeAndBindAreServedUnderEachPrefix) {
  for (const std::string prefix : {"/v1/extender", "/gpushare-scheduler"}) {
    d.AddPod(GpuPod("a", {{names::kResourceGpu, "1"}}));
    const auto filtered =
        Send("POST", prefix + "/filter", FilterBody("1", R"("NodeNames":["n1","n2"])"));
    EXPECT_EQ(filtered.status, 200);
    EXPECT_EQ(filtered.headers.Get("Content-Type"), "application/json");
    EXPECT_THAT(filtered.body, HasSubstr(R"("NodeNames":["n1","n2"])"));
    const auto scored =
        Send("POST", prefix + "/prioritize", FilterBody("1", R"("NodeNames":["n1","n2"])"));
    EXPECT_THAT(scored.body, HasSubstr(R"("Score":10)"));
    const auto bound = Send("POST", prefix + "/bind", Binding("uid-a", "n1"));
    EXPECT_EQ(bound.status, 200);
    EXPECT_EQ(bound.body, R"({"Error":""})");
    d.RemovePod(GpuPod("a", {}));
  }
}

// gpushare's users check the status; kube-scheduler checks status and body.
TEST_F(VerbsTest, FailedBindIsHttp500OnlyOnThePathOfGpushare) {
  const auto gpushare_answer = Send("POST", "/gpushare-scheduler/bind", Binding("uid-a", "n1"));
  EXPECT_EQ(gpushare_answer.status, 500);
  EXPECT_THAT(gpushare_answer.body, StartsWith(R"({"Error":"pod ns/a)"));
  const auto tessera_answer = Send("POST", "/v1/extender/bind", Binding("uid-a", "n1"));
  EXPECT_EQ(tessera_answer.status, 200);
  EXPECT_EQ(tessera_answer.body, gpushare_answer.body);
  EXPECT_THAT(Send("POST", "/v1/extender/bind", "{}").body, HasSubstr("PodName is missing"));
}

TEST_F(VerbsTest, PredicatesReturnOneWholeNode) {
  const auto answer =
      Send("POST", "/scheduler/predicates",
           FilterBody(
               "1", R"("Nodes":{"items":[{"metadata":{"name":"n1"},"spec":{"x":1}},)"
                    R"({"metadata":{"name":"n2"},"spec":{"x":1}},{"metadata":{"name":"cpu"}}]})"));
  const Result<Json> json = ParseJson(answer.body);
  ASSERT_TRUE(json.ok()) << answer.body;
  ASSERT_EQ(json->Find("Nodes")->Find("items")->items().size(), 1u);
  EXPECT_EQ(json->Find("Nodes")->Find("items")->items()[0].Find("spec")->Serialize(), R"({"x":1})");
  EXPECT_THAT(answer.body, HasSubstr("has already been matched to another node"));
  EXPECT_EQ(
      Send("POST", "/scheduler/priorities", FilterBody("1", R"("NodeNames":["n1","cpu"])")).body,
      R"([{"Host":"n1","Score":0},{"Host":"cpu","Score":1}])");
}

TEST_F(VerbsTest, PreemptAnswersWithMetaVictims) {
  EXPECT_EQ(Send("POST", "/v1/extender/preempt",
                 FilterBody("1", R"("NodeNameToVictims":{"n1":{"Pods":[],"NumPDBViolations":0}})"))
                .body,
            R"({"NodeNameToMetaVictims":{}})");
}

TEST_F(VerbsTest, ServesInspectAndVersion) {
  EXPECT_THAT(Send("GET", "/gpushare-scheduler/inspect").body, HasSubstr(R"("name":"n2")"));
  const std::string one = Send("GET", "/gpushare-scheduler/inspect/n%31").body;
  EXPECT_THAT(one, HasSubstr(R"("name":"n1")"));
  EXPECT_THAT(one, ::testing::Not(HasSubstr(R"("name":"n2")")));
  EXPECT_THAT(Send("GET", "/gpushare-scheduler/inspect/ghost").body, HasSubstr("error"));
  EXPECT_EQ(Send("GET", "/version").body, kTesseraVersion);
}

TEST_F(VerbsTest, ReportsWhyItCannotDecide) {
  why_not = "not the leader: pod-1 leads";
  for (const char* verb : {"filter", "prioritize", "bind", "preempt"}) {
    const auto answer = Send("POST", "/v1/extender/" + std::string(verb), "{}");
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.body, why_not + "\n");
    EXPECT_EQ(answer.headers.Get("Connection"), "close");
  }
  EXPECT_EQ(Send("GET", "/version").status, 200);
}

TEST_F(VerbsTest, InvalidRequestsGetAnErrorAndChangeNothing) {
  const auto filtered = Send("POST", "/v1/extender/filter", "{\"Pod\":");
  EXPECT_EQ(filtered.status, 200);
  EXPECT_THAT(ParseJson(filtered.body)->Find("Error")->string_value(), HasSubstr("JSON"));
  EXPECT_EQ(Send("POST", "/v1/extender/prioritize", "[]").status, 400);
  EXPECT_EQ(Send("POST", "/v1/extender/preempt", "").status, 400);
  EXPECT_EQ(Send("GET", "/v1/extender/filter").status, 405);
  const auto missing = Send("POST", "/v2/filter");
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, HasSubstr("POST /v1/extender/filter\n"));
  EXPECT_EQ(d.metrics.bad_requests.values().at("filter"), 1u);
}

TEST_F(VerbsTest, CountsResponses) {
  Send("POST", "/v1/extender/filter", FilterBody("1", R"("NodeNames":["n1"])"));
  Send("POST", "/v1/extender/filter", FilterBody("4", R"("NodeNames":["n1"])"));
  Send("POST", "/v1/extender/bind", Binding("uid-b", "n1"));
  const std::string page = MetricsPage(d.metrics, {.leading = true, .ledger = d.ledger.get()});
  for (const char* line :
       {"tessera_scheduler_request_duration_seconds_count{verb=\"filter\"} 2\n",
        "tessera_scheduler_refused_total{reason=\"no_node_fits\"} 1\n",
        "tessera_scheduler_bindings_total{code=\"NOT_FOUND\"} 1\n",
        "tessera_scheduler_gpu_nodes 2\n", "tessera_scheduler_gpus{state=\"all\"} 3\n",
        "tessera_scheduler_leading 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST_F(VerbsTest, TheMetricsPageCountsPodsByTheirState) {
  d.ledger->SetNode(ledger::testing::GpuNode("none", 0));
  const auto assumed = ledger::testing::Whole("assumed");
  d.AddPod(assumed);
  d.extender->Filter(d.Args(assumed, {"n1"}));
  // Bound without an assignment, so its GPUs are guessed.
  for (const char* node : {"n1", "n2"}) {
    d.AddPod(ledger::testing::BoundPod(ledger::testing::Whole("guessed-" + std::string(node)), node,
                                       {}));
  }
  const std::string page = MetricsPage(d.metrics, {.ledger = d.ledger.get()});
  for (const char* line :
       {"tessera_scheduler_gpu_nodes 2\n", "tessera_scheduler_assumed_pods 1\n",
        "tessera_scheduler_guessed_pods 2\n", "tessera_scheduler_problem_pods 0\n",
        "tessera_scheduler_overassigned_gpus 0\n", "tessera_scheduler_leading 0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page, ::testing::Not(HasSubstr("admissions_total")));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("client_certificate")));
}

TEST_F(VerbsTest, TheMetricsPageCountsPodsWithInvalidAnnotations) {
  d.AddPod(ledger::testing::BoundPod(
      ledger::testing::Whole("a"), "n1",
      {{std::string(names::kAnnotationAssignment), "not an assignment"}}));
  EXPECT_THAT(MetricsPage(d.metrics, {.ledger = d.ledger.get()}),
              HasSubstr("tessera_scheduler_problem_pods 1\n"));
}

}  // namespace
}  // namespace tessera::scheduler
