// SPDX-License-Identifier: Apache-2.0
#include "src/cli/usage.h"

#include <gtest/gtest.h>

#include "src/cli/testing/fake_cluster.h"

namespace tessera::cli {
namespace {

// The page from the agent's usage_page_test.cc.
constexpr const char* kPage =
    R"({"node":"big","containers":[{"namespace":"default","pod":"nginx","container":"main",)"
    R"("uuid":"GPU-big-1","index":1,"milli":300,"class":"high","limit_milli":600,)"
    R"("used_milli":290,"driver_milli":310,"waiting_milli":1250,"waited_ms":12340,)"
    R"("mean_milli":295,"worst_error_milli":-30,"mean_driver_milli":300,)"
    R"("memory":{"granted":5368709120,"limit":4294967296,)"
    R"("used":4294967296,"unaccounted":1073741824,"peak":4294967296,"driver":4831838208},)"
    R"("refused":7,"processes":2},{"namespace":"web","pod":"binpack-2","container":"main",)"
    R"("uuid":"GPU-big-2","milli":0,"memory":{"granted":3221225472,"limit":3221225472,"used":0,)"
    R"("unaccounted":0,"peak":0},"refused":0,"processes":0}]})";

// The same container on a node where isolation is off.
constexpr const char* kNotLimitedPage =
    R"({"node":"big","containers":[{"namespace":"default","pod":"nginx","container":"main",)"
    R"("uuid":"GPU-big-1","index":1,"limited":false,"milli":300,)"
    R"("memory":{"granted":5368709120}}]})";

ClusterUses Uses() { return {.uses = DecodeUses(kPage).value().uses, .problems = {}}; }

TEST(UsageTest, TopShowsUsageAndLimits) {
  EXPECT_EQ(
      ShowTop(Uses(), "", {}).value(),
      R"(NAMESPACE   POD         CONTAINER   NODE   GPU   MEMORY   LIMIT   PEAK    REFUSED   SHARE   UP TO   COMPUTE   BY DRIVER   WAITING
default     nginx       main        big    1     4 GiB    4 GiB   4 GiB   7         0.3     0.6     0.29      0.31        1.25
web         binpack-2   main        big    -     0 MiB    3 GiB   0 MiB   0         -       -       -         -           -
)");
  EXPECT_EQ(
      ShowTop(Uses(), "default", {.format = OutputFormat::kWide, .shows_header = false}).value(),
      "nginx   main   big   1   4 GiB   4 GiB   4 GiB   7   0.3   0.6   0.29   0.31   1.25   "
      "12.3s   "
      "high   5 GiB   1 GiB   4.5 GiB   2   "
      "GPU-big-1\n");
  EXPECT_EQ(
      ShowTop(Uses(), "ml", {}).value(),
      "No running container of namespace ml has a share of a GPU; -A shows all namespaces.\n");
}

TEST(UsageTest, JsonHasExactBytesAndProblems) {
  ClusterUses uses = Uses();
  uses.uses.pop_back();
  uses.problems["n2"] = Status(Code::kUnavailable, "away");
  EXPECT_EQ(
      ParseJson(ShowTop(uses, "", {.format = OutputFormat::kJson}).value())->Serialize(),
      R"({"kind":"ContainerList","items":[{"namespace":"default","pod":"nginx",)"
      R"("container":"main","node":"big",)"
      R"("gpu":"1","uuid":"GPU-big-1","limited":true,"milli":300,"class":"high","limit_milli":600,)"
      R"("used_milli":290,"driver_milli":310,"waiting_milli":1250,"waited_ms":12340,)"
      R"("mean_milli":295,"worst_error_milli":-30,"mean_driver_milli":300,)"
      R"("memory":{"granted":5368709120,)"
      R"("limit":4294967296,"used":4294967296,"unaccounted":1073741824,"peak":4294967296,)"
      R"("driver":4831838208},"refused":7,"processes":2,"without_limiter":0,)"
      R"("metadata":{"namespace":"default","name":"nginx/main"}}],)"
      R"("problems":{"n2":"away"}})");
}

TEST(UsageTest, ShowsContainersThatAreNotLimited) {
  const ClusterUses uses{.uses = DecodeUses(kNotLimitedPage).value().uses, .problems = {}};
  EXPECT_EQ(ShowTop(uses, "default", {.shows_header = false}).value(),
            "nginx   main   big   1   -   not limited   -   -   0.3   -   -   -   -\n");
  EXPECT_NE(ParseJson(ShowTop(uses, "", {.format = OutputFormat::kJson}).value())
                ->Serialize()
                .find(R"("limited":false,"milli":300,"memory":{"granted":5368709120},"metadata")"),
            std::string::npos);
}

TEST(UsageTest, ShareSentenceNamesTheLargestDeviation) {
  ContainerUse use{.container = "main", .gpu = "1"};
  EXPECT_EQ(ShareSentence(use), "") << "an older agent";
  use.mean_used_milli = 290;
  use.worst_deviation_milli = -32;
  EXPECT_EQ(
      ShareSentence(use),
      "main on GPU 1 in the last minute: 0.29 on average, at worst 0.032 below its share in a "
      "second, while it waited");
  use.worst_deviation_milli = 20;
  EXPECT_EQ(
      ShareSentence(use),
      "main on GPU 1 in the last minute: 0.29 on average, at worst 0.02 beyond its limit in a "
      "second");
  use.worst_deviation_milli = 0;
  EXPECT_EQ(ShareSentence(use),
            "main on GPU 1 in the last minute: 0.29 on average, never beyond its limit, and never "
            "below its share while it waited");
}

TEST(UsageTest, APageOfAnotherFormatIsAnError) {
  for (const char* page :
       {"", "ok", "{}", R"({"node":"n"})", R"({"node":"n","containers":[{}]})"}) {
    EXPECT_FALSE(DecodeUses(page).ok()) << page;
  }
}

TEST(UsageTest, ErrorWithoutPermissionNamesTheRole) {
  EXPECT_TRUE(ProblemOf(Uses()).ok());
  EXPECT_TRUE(ProblemOf({}).ok()) << "no container is limited";
  ClusterUses none;
  none.problems["n1"] = Status(Code::kPermissionDenied, "forbidden");
  EXPECT_EQ(ProblemOf(none).code(), Code::kPermissionDenied);
  EXPECT_NE(ProblemOf(none).message().find("Role tessera-view-usage"), std::string::npos);
}

TEST(UsageTest, KeepsWarningsOfAgentsOldestFirst) {
  const auto event = [](const char* component, const char* at, const char* reason) {
    return kube::RawObject(
        ParseJson(fmt::format(R"({{"source":{{"component":"{}"}},"lastTimestamp":"{}",)"
                              R"("reason":"{}","message":"text"}})",
                              component, at, reason))
            .value());
  };
  const auto warnings = WarningsIn({event("tessera-agent", "2026-11-28T19:00:01Z", "B"),
                                    event("kubelet", "2026-11-28T19:00:00Z", "Unhealthy"),
                                    event("tessera-agent", "2026-11-28T19:00:00Z", "A")});
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0].reason, "A");
  EXPECT_EQ(warnings[1].reason, "B");
  EXPECT_EQ(warnings[0].count, 1);
  EXPECT_EQ(WarningsQuery("ml", Uid("u-1")).field_selector, "type=Warning,involvedObject.uid=u-1");
}

TEST(UsageTest, ExplainShowsLimitsAndUse) {
  testing::FakeCluster cluster;
  testing::FillSample(cluster);
  const auto pod = cluster.Place(
      testing::PodIn("default", "nginx",
                     {{names::kResourceVcudaCore, "30"}, {names::kResourceVcudaMemory, "20"}}),
      "big", 1, 300, GiB(5));
  const Result<ClusterUses> uses = Uses();
  const std::string text = Explain(cluster.ledger(), pod, {}, &uses).value();
  EXPECT_NE(text.find(R"(
Usage of its shares by container:
  CONTAINER   GPU   MEMORY   LIMIT                    PEAK    REFUSED   SHARE   UP TO   COMPUTE   BY DRIVER   WAITING   CLASS   UNACCOUNTED
  main        1     4 GiB    4 GiB of 5 GiB granted   4 GiB   7         0.3     0.6     0.29      0.31        1.25      high    1 GiB
  main on GPU 1 in the last minute: 0.295 on average (0.3 by the driver), at worst 0.03 below its share in a second, while it waited

Current scores)"),
            std::string::npos)
      << text;
  const Result<ClusterUses> off =
      ClusterUses{.uses = DecodeUses(kNotLimitedPage).value().uses, .problems = {}};
  const std::vector<PodWarning> warnings{{.at = "2026-11-28T19:00:00Z",
                                          .reason = "GPULimitRejected",
                                          .message = "annotation tessera.dev/memory-limit: no",
                                          .count = 2}};
  EXPECT_NE(Explain(cluster.ledger(), pod, {}, &uses, warnings)
                .value()
                .find("Warnings (Events of the last hour):\n"
                      "  2026-11-28T19:00:00Z GPULimitRejected: annotation "
                      "tessera.dev/memory-limit: no (2 times)\n"),
            std::string::npos);
  EXPECT_NE(Explain(cluster.ledger(), pod, {.format = OutputFormat::kJson}, &uses, warnings)
                .value()
                .find("GPULimitRejected"),
            std::string::npos);
  EXPECT_NE(Explain(cluster.ledger(), pod, {}, &off)
                .value()
                .find("A container that is not limited can exceed its share: isolation was "
                      "off on node big"),
            std::string::npos);
  const Result<ClusterUses> none = Status(Code::kUnavailable, "agent x is away");
  EXPECT_NE(Explain(cluster.ledger(), pod, {}, &none)
                .value()
                .find("The usage of its shares is unknown: agent x is away\n"),
            std::string::npos);
  const auto whole = cluster.Place(testing::PodIn("ml", "train", {{names::kResourceGpu, "1"}}),
                                   "big", 0, 1000, GiB(80));
  EXPECT_EQ(Explain(cluster.ledger(), whole, {}, &none).value().find("sage of its shares"),
            std::string::npos)
      << "whole GPUs are not limited";
}

}  // namespace
}  // namespace tessera::cli
