// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/cli/testing/command_fixture.h"
#include "src/ledger/testing/objects.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Nodes n1 and n2 have an agent. Pods "train" and "other" have a share of a GPU of n1.
class TopTest : public testing::CommandFixture {
 protected:
  TopTest() {
    PutAgent("n1", UseOf("train") + "," + UseOf("other"));
    PutAgent("n2", "");
    PutPod("train", R"("aliyun.com/gpu-mem":"8")", "n1");
    PutPod("other", R"("aliyun.com/gpu-mem":"8")", "n1");
  }
  static std::string UseOf(const std::string& pod) {
    return fmt::format(
        R"({{"namespace":"default","pod":"{}","container":"main","uuid":"GPU-1","index":0,)"
        R"("milli":0,"memory":{{"granted":1,"limit":1,"used":1,"unaccounted":0,"peak":1}},)"
        R"("refused":0,"processes":1}})",
        pod);
  }
  void PutAgent(const std::string& node, const std::string& uses) {
    const std::string agent = "agent-" + node;
    server_.PutAgent(agent, node);
    server_.Put(
        fmt::format("/api/v1/namespaces/tessera-system/pods/{}:9400/proxy/containers", agent),
        ParseJson(fmt::format(R"({{"node":"{}","containers":[{}]}})", node, uses)).value());
  }
  void PutPod(const std::string& name, const std::string& limits, const std::string& node,
              const std::string& phase = "Running") {
    server_.Put(
        "/api/v1/namespaces/default/pods/" + name,
        ParseJson(fmt::format(R"({{"metadata":{{"name":"{}","namespace":"default","uid":"u"}},)"
                              R"("spec":{{"nodeName":"{}","containers":[{{"name":"main",)"
                              R"("resources":{{"limits":{{{}}}}}}}]}},"status":{{"phase":"{}"}}}})",
                              name, node, limits, phase))
            .value());
  }
  // The message of `tessera top <words>`, which fails with this exit code.
  std::string ErrorOf(std::vector<std::string> words, int exit_code) {
    words.insert(words.begin(), "top");
    const testing::CommandResult ran = Run(words);
    EXPECT_EQ(ran.exit_code, exit_code) << ran.out;
    EXPECT_EQ(ran.out, "");
    return ran.err;
  }
};

TEST_F(TopTest, ShowsThePodThatIsNamed) {
  for (const std::string name : {"train", "pod/train", "default/train"}) {
    const testing::CommandResult ran = Run({"top", name, "--no-headers"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(ran.out.starts_with("train   main   n1   0 ")) << ran.out;
    EXPECT_THAT(ran.out, Not(HasSubstr("other")));
  }
  for (const std::string& path : server_.paths()) EXPECT_THAT(path, Not(HasSubstr("agent-n2")));
}

TEST_F(TopTest, SaysWhyANamedPodIsNotShown) {
  EXPECT_EQ(ErrorOf({"trian"}, 66),
            "tessera: there is no pod \"trian\" in namespace default: did you mean train?\n");
  EXPECT_EQ(ErrorOf({"train", "-n", "ml"}, 66),
            "tessera: there is no pod \"train\" in namespace ml\n");
  PutPod("done", R"("aliyun.com/gpu-mem":"8")", "n1", "Succeeded");
  EXPECT_EQ(
      ErrorOf({"done"}, 66),
      "tessera: pod default/done has ended (phase Succeeded): it no longer holds a share of a "
      "GPU\n");
  PutPod("plain", "", "n1");
  EXPECT_EQ(ErrorOf({"plain"}, 66), "tessera: pod default/plain requests no share of a GPU\n");
  PutPod("whole", R"("nvidia.com/gpu":"1")", "n1");
  EXPECT_EQ(ErrorOf({"whole"}, 66),
            "tessera: pod default/whole requests whole GPUs: only shares are limited\n");
  PutPod("late", R"("aliyun.com/gpu-mem":"8")", "", "Pending");
  EXPECT_EQ(ErrorOf({"late"}, 66),
            "tessera: pod default/late has no share of a GPU yet: it waits for a node: see "
            "\"tessera explain default/late\"\n");
  PutPod("starts", R"("aliyun.com/gpu-mem":"8")", "n2", "Pending");
  EXPECT_EQ(ErrorOf({"starts"}, 66),
            "tessera: no container of pod default/starts that has a share runs on node n2: see "
            "\"kubectl -n default describe pod starts\"\n");
  PutPod("alone", R"("aliyun.com/gpu-mem":"8")", "n3");
  EXPECT_THAT(ErrorOf({"alone"}, 66), HasSubstr("no tessera-agent runs on node n3"));
  EXPECT_EQ(ErrorOf({"train", "-A"}, 64), "tessera: -A with the name train: use either of them\n");
}

TEST_F(TopTest, NamesNodesWithGpusAndWithoutAnAgent) {
  const auto put_node = [&](const std::string& name, const std::string& capacity,
                            const std::string& devices) {
    Json node = ParseJson(fmt::format(R"({{"metadata":{{"name":"{}","annotations":{{}}}},)"
                                      R"("status":{{"capacity":{{{}}}}}}})",
                                      name, capacity))
                    .value();
    if (!devices.empty()) {
      node.Find("metadata")
          ->Find("annotations")
          ->Set(names::kAnnotationDevices, Json::String(devices));
    }
    server_.Put("/api/v1/nodes/" + name, std::move(node));
  };
  put_node("n1", R"("nvidia.com/gpu":"1")", "");
  put_node("n3", R"("aliyun.com/gpu-mem":"80")", "");
  const std::string devices =
      ledger::testing::GpuNode("n4", 1).meta.annotations.at(std::string(names::kAnnotationDevices));
  put_node("n4", R"("nvidia.com/gpu":"0")", devices);
  put_node("n5", R"("nvidia.com/gpu":"0","cpu":"8")", "");
  const std::string text =
      " has GPU resources, but no agent runs on it: its containers are not shown: check "
      "daemonsets.nodeSelector and daemonsets.tolerations (see \"tessera status\")";
  testing::CommandResult ran = Run({"top", "-o", "json"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "tessera: node n3" + text + "\ntessera: node n4" + text + "\n");
  EXPECT_EQ(ParseJson(ran.out)->Find("problems")->StringAt("n3").value(), "node n3" + text);
  server_.Refuse("nodes", 403);
  ran = Run({"top"});
  EXPECT_EQ(ran.exit_code, 0) << "without the right to list nodes";
  EXPECT_EQ(ran.err, "");
}

TEST_F(TopTest, ShowsThePodsOfASelector) {
  Json pod = *server_.Find("/api/v1/namespaces/default/pods/other");
  pod.Find("metadata")->Set("labels", ParseJson(R"({"app":"web"})").value());
  server_.Put("/api/v1/namespaces/default/pods/other", std::move(pod));
  const testing::CommandResult ran = Run({"top", "-l", "app=web", "--no-headers"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(ran.out.starts_with("other   main ")) << ran.out;
  EXPECT_THAT(ran.out, Not(HasSubstr("train")));
}

}  // namespace
}  // namespace tessera::cli
