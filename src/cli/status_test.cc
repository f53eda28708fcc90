// SPDX-License-Identifier: Apache-2.0
#include "src/cli/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

Json Object(const std::string& text) { return ParseJson(text).value(); }

Json PodOf(const std::string& component, const std::string& name, const std::string& status,
           const std::string& node = "n1") {
  return Object(
      fmt::format(R"({{"metadata":{{"name":"{}","labels":{{"app.kubernetes.io/name":"{}"}}}},)"
                  R"("spec":{{"nodeName":"{}"}},"status":{}}})",
                  name, component, node, status));
}

Json NodeOf(const std::string& name, const std::string& gpu_condition,
            const std::string& ready = "True") {
  return Object(fmt::format(R"({{"metadata":{{"name":"{}"}},"status":{{"conditions":[)"
                            R"({{"type":"Ready","status":"{}"}}{}]}}}})",
                            name, ready, gpu_condition.empty() ? "" : "," + gpu_condition));
}

constexpr char kReady[] = R"({"podIP":"10.1.0.5","conditions":[{"type":"Ready","status":"True"}]})";
constexpr char kHealthy[] = R"({"type":"GPUReady","status":"True","reason":"GPUsHealthy"})";

// An installation in which all works.
class InstallationStatusTest : public ::testing::Test {
 protected:
  InstallationStatusTest() {
    objects_.agent_daemonset = Object(R"({"status":{"desiredNumberScheduled":1,"numberReady":1}})");
    objects_.scheduler_deployment =
        Object(R"({"spec":{"replicas":2},"status":{"readyReplicas":2}})");
    objects_.scheduler_endpoints = Object(R"({"endpoints":[{"addresses":["10.1.0.5"]}]})");
    objects_.webhook = Object(R"({"webhooks":[{"clientConfig":{"caBundle":"abc"}}]})");
    objects_.leader_metrics =
        std::string("tessera_scheduler_request_duration_seconds_count{verb=\"filter\"} 12\n");
    objects_.pods = {PodOf("tessera-agent", "agent-x", kReady),
                     PodOf("tessera-scheduler", "scheduler-a", kReady)};
    objects_.nodes = {NodeOf("n1", kHealthy), NodeOf("no-gpu", "")};
  }
  InstallationStatus Evaluate() const { return StatusOf(objects_); }
  StatusLine Component(const std::string& name) const {
    for (const StatusLine& line : Evaluate().components) {
      if (line.name == name) return line;
    }
    ADD_FAILURE() << "no line " << name;
    return {};
  }
  StatusLine OnlyNode() const {
    const InstallationStatus status = Evaluate();
    EXPECT_FALSE(status.works());
    EXPECT_EQ(status.nodes.size(), 1u);
    return status.nodes.empty() ? StatusLine() : status.nodes[0];
  }

  InstallationObjects objects_;
};

TEST_F(InstallationStatusTest, SaysThatAllWorks) {
  EXPECT_TRUE(Evaluate().works());
  EXPECT_EQ(Component("scheduler").detail, "2 of 2 replicas ready, scheduler-a leads");
  EXPECT_EQ(Component("GPUs").detail, "1 of 1 nodes with GPUs have all of them healthy");
  EXPECT_EQ(Component("kube-scheduler").detail, "connected: it has asked the leader about 12 pods");
  EXPECT_EQ(ShowStatus(Evaluate(), {}).value().find("fix:"), std::string::npos);
}

TEST_F(InstallationStatusTest, NamesWhatIsNotInstalled) {
  const InstallationStatus nothing = StatusOf({});
  EXPECT_FALSE(nothing.works());
  EXPECT_EQ(nothing.components[0].detail, "DaemonSet tessera-agent is missing");
  EXPECT_THAT(nothing.components[0].fix, HasSubstr("docs/tasks/install.md"));
  EXPECT_TRUE(nothing.components[2].works) << "a chart without a webhook";
}

TEST_F(InstallationStatusTest, NamesAMissingRight) {
  objects_.agent_daemonset = Status(Code::kPermissionDenied, "daemonsets is forbidden");
  EXPECT_FALSE(Component("agent").works);
  EXPECT_THAT(Component("agent").fix, HasSubstr("tessera-view"));
  objects_.leader_metrics = Status(Code::kPermissionDenied, "pods/proxy is forbidden");
  EXPECT_TRUE(Component("kube-scheduler").works);
  EXPECT_EQ(Component("kube-scheduler").detail, "unknown: pods/proxy is forbidden");
}

TEST_F(InstallationStatusTest, NamesTheImageThatANodeCannotPull) {
  objects_.agent_daemonset = Object(R"({"status":{"desiredNumberScheduled":1,"numberReady":0}})");
  objects_.pods[0] = PodOf(
      "tessera-agent", "agent-x",
      R"({"initContainerStatuses":[{"name":"install-runtime","state":{"waiting":)"
      R"({"reason":"ErrImagePull","message":"not found"}}}],"containerStatuses":[{"name":"agent",)"
      R"("state":{"waiting":{"reason":"PodInitializing"}}}]})");
  EXPECT_FALSE(Component("agent").works);
  EXPECT_EQ(OnlyNode().detail, "agent-x: container install-runtime: ErrImagePull: not found");
  EXPECT_THAT(OnlyNode().fix, HasSubstr("image.registry"));
}

TEST_F(InstallationStatusTest, NamesTheLogOfAContainerThatFailed) {
  objects_.pods[0] = PodOf("tessera-agent", "agent-x",
                           R"({"initContainerStatuses":[{"name":"install-runtime","state":)"
                           R"({"terminated":{"exitCode":75}}}]})");
  EXPECT_EQ(OnlyNode().detail, "agent-x: container install-runtime ended with exit code 75");
  EXPECT_EQ(OnlyNode().fix, "kubectl -n tessera-system logs agent-x -c install-runtime --previous");
}

TEST_F(InstallationStatusTest, NamesUnhealthyGpus) {
  objects_.nodes[0] = NodeOf("n1", R"({"type":"GPUReady","status":"False","reason":"GPUUnhealthy",)"
                                   R"("message":"1 of 8 GPUs is unhealthy: GPU-1: XID 79"})");
  EXPECT_EQ(OnlyNode().detail, "GPUUnhealthy: 1 of 8 GPUs is unhealthy: GPU-1: XID 79");
  EXPECT_THAT(OnlyNode().fix, HasSubstr("docs/concepts/health.md"));
  EXPECT_FALSE(Component("GPUs").works);
}

TEST_F(InstallationStatusTest, NamesANodeWithoutAgentOrKubelet) {
  objects_.pods.erase(objects_.pods.begin());
  objects_.nodes[0] = NodeOf("n1", R"({"type":"GPUReady","status":"False","reason":"NoGPU"})");
  EXPECT_EQ(OnlyNode().detail, "no agent runs on it, and it had GPUs");
  objects_.nodes[0] = NodeOf("n1", kHealthy, "Unknown");
  EXPECT_EQ(OnlyNode().fix, "kubectl describe node n1");
}

TEST_F(InstallationStatusTest, NamesASchedulerWithoutLeaderOrCertificate) {
  objects_.scheduler_endpoints = Object(R"({"endpoints":[]})");
  EXPECT_EQ(Component("scheduler").detail, "2 of 2 replicas ready, no replica leads");
  objects_.webhook = Object(R"({"webhooks":[{"clientConfig":{}}]})");
  EXPECT_THAT(Component("webhook").detail, HasSubstr("has not written its certificate"));
}

TEST_F(InstallationStatusTest, TellsThatKubeSchedulerIsNotConnected) {
  objects_.leader_metrics =
      std::string("tessera_scheduler_request_duration_seconds_count{verb=\"filter\"} 0\n");
  EXPECT_TRUE(Evaluate().works());
  EXPECT_THAT(Component("kube-scheduler").fix, HasSubstr("connect-kube-scheduler.md"));
}

TEST_F(InstallationStatusTest, JsonHasEachLine) {
  objects_.nodes[0] = NodeOf("n1", kHealthy, "False");
  const Json json = Object(ShowStatus(Evaluate(), {.format = OutputFormat::kJson}).value());
  EXPECT_EQ(*json.Find("works"), Json::Bool(false));
  EXPECT_EQ(json.Find("items")->items().size(), 6u);
  EXPECT_EQ(json.Find("items")->items().back().Find("metadata")->StringAt("name").value(), "n1");
}

}  // namespace
}  // namespace tessera::cli
