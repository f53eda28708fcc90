// SPDX-License-Identifier: Apache-2.0
#include "src/cli/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json Object(const std::string& text) { return ParseJson(text).value(); }

Json PodOf(const std::string& component, const std::string& name, const std::string& status,
           const std::string& node = "n1") {
  return Object(fmt::format(R"({{"metadata":{{"name":"{}","namespace":"tessera-system","labels":)"
                            R"({{"app.kubernetes.io/name":"{}"}}}},)"
                            R"("spec":{{"nodeName":"{}"}},"status":{}}})",
                            name, component, node, status));
}

Json NodeOf(const std::string& name, const std::string& gpu_condition,
            const std::string& ready = "True") {
  return Object(fmt::format(R"({{"metadata":{{"name":"{}"}},"status":{{"conditions":[)"
                            R"({{"type":"Ready","status":"{}"}}{}]}}}})",
                            name, ready, gpu_condition.empty() ? "" : "," + gpu_condition));
}

// The DaemonSet of a pool, or the general one.
Json AgentsOf(const std::string& pool, int wanted, int ready) {
  return Object(fmt::format(
      R"({{"metadata":{{"name":"tessera-agent{}{}","labels":{{{}}}}},"status":)"
      R"({{"desiredNumberScheduled":{},"numberReady":{}}}}})",
      pool.empty() ? "" : "-", pool,
      pool.empty() ? "" : fmt::format(R"("tessera.dev/pool":"{}")", pool), wanted, ready));
}

constexpr char kReady[] = R"({"podIP":"10.1.0.5","conditions":[{"type":"Ready","status":"True"}]})";
constexpr char kHealthy[] = R"({"type":"GPUReady","status":"True","reason":"GPUsHealthy"})";

// An installation whose components all work.
class InstallationStatusTest : public ::testing::Test {
 protected:
  InstallationStatusTest() {
    objects_.agent_daemonsets = std::vector{AgentsOf("", 1, 1)};
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
      if (line.name == name) return Checked(line);
    }
    ADD_FAILURE() << "no line " << name;
    return {};
  }
  StatusLine OnlyNode() const {
    const InstallationStatus status = Evaluate();
    EXPECT_FALSE(status.works());
    EXPECT_EQ(status.nodes.size(), 1u);
    return status.nodes.empty() ? StatusLine() : Checked(status.nodes[0]);
  }
  // The fix names no file of this tree, which administrators do not have.
  static const StatusLine& Checked(const StatusLine& line) {
    EXPECT_THAT(line.fix, Not(HasSubstr("docs/")));
    EXPECT_THAT(line.fix, Not(HasSubstr("deploy/")));
    return line;
  }

  InstallationObjects objects_;
};

TEST_F(InstallationStatusTest, SaysThatAllWorks) {
  EXPECT_TRUE(Evaluate().works());
  EXPECT_EQ(Component("scheduler").detail, "2 of 2 replicas ready, scheduler-a leads");
  EXPECT_EQ(Component("GPUs").detail, "1 of 1 nodes with GPUs have all of them healthy");
  EXPECT_EQ(Component("kube-scheduler").detail,
            "connected: it has asked the leader 12 times for nodes of a pod");
  EXPECT_EQ(ShowStatus(Evaluate(), {}).value().find("fix:"), std::string::npos);
}

TEST_F(InstallationStatusTest, NamesWhatIsNotInstalled) {
  const InstallationStatus nothing = StatusOf({});
  EXPECT_FALSE(nothing.works());
  EXPECT_EQ(nothing.components[0].detail, "DaemonSet tessera-agent is missing");
  EXPECT_THAT(nothing.components[0].fix, HasSubstr("tessera install"));
  EXPECT_TRUE(nothing.components[2].works) << "a chart without a webhook";
}

TEST_F(InstallationStatusTest, SaysWhatIsNotKnown) {
  objects_.leader_metrics = Status(Code::kNotFound, "no scheduler leads");
  EXPECT_TRUE(Component("kube-scheduler").works);
  EXPECT_TRUE(Component("kube-scheduler").is_unknown);
  EXPECT_THAT(ShowStatus(Evaluate(), {}).value(), HasSubstr("kube-scheduler   unknown"));
  objects_.nodes.clear();
  EXPECT_EQ(Component("GPUs").detail, "no node has reported GPUs");
}

TEST_F(InstallationStatusTest, AWebhookWithoutItsServiceDoesNotWork) {
  objects_.audit.tool = InstallTool::kTessera;
  objects_.audit.problems.missing = {{"v1", "Service", "tessera-system", "tessera-scheduler"}};
  EXPECT_FALSE(Component("webhook").works);
  EXPECT_EQ(Component("webhook").detail, "Service tessera-system/tessera-scheduler is missing");
  EXPECT_THAT(Component("webhook").fix, HasSubstr("tessera upgrade"));
}

TEST_F(InstallationStatusTest, NamesInTheNameFormatHaveNoSpaces) {
  objects_.agent_daemonsets = std::vector{AgentsOf("", 1, 1), AgentsOf("a10", 1, 1)};
  const Result<std::string> names = ShowStatus(Evaluate(), {.format = OutputFormat::kName});
  EXPECT_THAT(names.value(), HasSubstr("status/agent-of-pool-a10\n"));
}

TEST_F(InstallationStatusTest, TheFixForANodeWithoutAnAgentDependsOnTheDaemonSet) {
  objects_.agent_daemonsets = std::vector<Json>();
  objects_.pods.erase(objects_.pods.begin());
  objects_.audit.tool = InstallTool::kTessera;
  EXPECT_THAT(OnlyNode().fix, HasSubstr("tessera upgrade"));
  objects_.agent_daemonsets = std::vector{AgentsOf("", 0, 0)};
  EXPECT_THAT(OnlyNode().fix, HasSubstr("daemonsets.tolerations"));
}

TEST_F(InstallationStatusTest, NamesAMissingRight) {
  objects_.agent_daemonsets = Status(Code::kPermissionDenied, "daemonsets is forbidden");
  EXPECT_FALSE(Component("agent").works);
  EXPECT_THAT(Component("agent").fix, HasSubstr("tessera-view"));
  objects_.leader_metrics = Status(Code::kPermissionDenied, "pods/proxy is forbidden");
  EXPECT_TRUE(Component("kube-scheduler").works);
  EXPECT_THAT(Component("kube-scheduler").detail, HasSubstr("Role tessera-view-usage"));
  EXPECT_THAT(Component("kube-scheduler").detail, Not(HasSubstr("forbidden")));
}

TEST_F(InstallationStatusTest, AThrottlingServerIsNotReportedAsAMissingRight) {
  objects_.agent_daemonsets =
      Status(Code::kResourceExhausted, "cannot list daemonsets: 429 Too Many Requests");
  EXPECT_EQ(Component("agent").detail, "cannot list daemonsets: 429 Too Many Requests");
  EXPECT_THAT(Component("agent").fix, HasSubstr("run tessera status again"));
  EXPECT_THAT(Component("agent").fix, HasSubstr("flowschemas,prioritylevelconfigurations"));
  objects_.agent_daemonsets = Status(Code::kUnavailable, "connection refused");
  EXPECT_EQ(Component("agent").fix, "check the API server: kubectl get --raw /readyz");
}

TEST_F(InstallationStatusTest, NamesWhatTheDriverLacksAndTheFix) {
  const auto fix = [&](std::string_view reason, std::string_view message) {
    objects_.nodes[0] = NodeOf(
        "n1", fmt::format(R"({{"type":"GPUReady","status":"False","reason":"{}","message":"{}"}})",
                          reason, message));
    EXPECT_EQ(OnlyNode().detail, fmt::format("{}: {}", reason, message));
    return OnlyNode().fix;
  };
  EXPECT_THAT(fix("DriverNotReady", "no driver"), HasSubstr("install the driver"));
  EXPECT_THAT(fix("DriverIncomplete", "/run/nvidia/driver has no libcuda.so.1"),
              HasSubstr("see the log of the driver container"));
  EXPECT_THAT(fix("DriverConflict", "two drivers"), HasSubstr("remove the driver of the host"));
}

TEST_F(InstallationStatusTest, NamesTheImageThatANodeCannotPull) {
  objects_.agent_daemonsets = std::vector{AgentsOf("", 1, 0)};
  objects_.pods[0] = PodOf(
      "tessera-agent", "agent-x",
      R"({"initContainerStatuses":[{"name":"install-runtime","state":{"waiting":)"
      R"({"reason":"ErrImagePull","message":"not found"}}}],"containerStatuses":[{"name":"agent",)"
      R"("state":{"waiting":{"reason":"PodInitializing"}}}]})");
  EXPECT_FALSE(Component("agent").works);
  EXPECT_EQ(OnlyNode().detail, "agent-x: container install-runtime: ErrImagePull: not found");
  EXPECT_THAT(OnlyNode().fix, HasSubstr("image.registry"));
}

TEST_F(InstallationStatusTest, ADriverImageComesFromTheSettingsOfTheDriver) {
  Json driver = PodOf("nvidia-driver", "driver-x",
                      R"({"containerStatuses":[{"name":"nvidia-driver-ctr","state":{"waiting":)"
                      R"({"reason":"ErrImagePull","message":"not found"}}}]})");
  driver.Find("metadata")
      ->Find("labels")
      ->Set("app.kubernetes.io/component", Json::String("nvidia-driver"));
  objects_.driver_pods = std::vector{driver};
  EXPECT_THAT(OnlyNode().fix, HasSubstr("set driver.repository and driver.version"));
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
  EXPECT_THAT(OnlyNode().fix, HasSubstr("tessera gpus n1"));
  EXPECT_FALSE(Component("GPUs").works);
}

TEST_F(InstallationStatusTest, ShowsTheAgentsOfEachPool) {
  objects_.agent_daemonsets =
      std::vector{AgentsOf("t4", 3, 2), AgentsOf("", 1, 1), AgentsOf("h200", 0, 0)};
  EXPECT_EQ(Component("agent").detail, "1 of 1 nodes ready");
  EXPECT_EQ(Component("agent of pool t4").detail, "2 of 3 nodes ready");
  EXPECT_FALSE(Component("agent of pool t4").works);
  EXPECT_TRUE(Component("agent of pool h200").works);
  objects_.agent_daemonsets = std::vector{AgentsOf("t4", 3, 3)};
  EXPECT_EQ(Component("agent").detail, "DaemonSet tessera-agent is missing");
}

constexpr const char* kResource =
    R"({{"metadata":{{"generation":{}}},"status":{{"conditions":[{{"type":"Ready","status":"{}",)"
    R"("observedGeneration":2,"reason":"{}","message":"m"}},{{"type":"NVIDIAOperatorPresent",)"
    R"("status":"{}","message":"it manages 2 nodes"}}]}}}})";

Json ResourceOf(int generation, const char* ready, const char* reason, const char* nvidia) {
  return Object(fmt::format(fmt::runtime(kResource), generation, ready, reason, nvidia));
}

TEST_F(InstallationStatusTest, ShowsTheOperatorAndTheConditionsOfItsResource) {
  EXPECT_NE(Evaluate().components[0].name, "operator") << "an installation without an operator";
  objects_.operator_deployment = Object(R"({"spec":{"replicas":2},"status":{"readyReplicas":2}})");
  EXPECT_THAT(Component("resource Tessera").fix, HasSubstr("tessera install --operator"));
  objects_.tessera_resource = ResourceOf(2, "True", "AllComponentsReady", "True");
  EXPECT_TRUE(Evaluate().works());
  EXPECT_EQ(Component("operator").detail, "2 of 2 replicas ready");
  EXPECT_EQ(Component("resource Tessera").detail, "AllComponentsReady: m; it manages 2 nodes");
  objects_.tessera_resource = ResourceOf(3, "True", "AllComponentsReady", "False");
  EXPECT_THAT(Component("resource Tessera").detail, HasSubstr("has not read its last change yet"));
  EXPECT_THAT(Component("resource Tessera").fix, HasSubstr("logs deployment/tessera-operator"));
  EXPECT_FALSE(Component("resource Tessera").works);
  objects_.tessera_resource = ResourceOf(2, "False", "InvalidSpec", "False");
  EXPECT_EQ(Component("resource Tessera").detail, "InvalidSpec: m");
  EXPECT_FALSE(Component("resource Tessera").works);
  EXPECT_EQ(Component("resource Tessera").fix, "kubectl edit tessera tessera");
}

TEST_F(InstallationStatusTest, SaysWhatToDoForEachReasonOfTheOperator) {
  objects_.operator_deployment = Object(R"({"spec":{"replicas":2},"status":{"readyReplicas":2}})");
  const auto fix = [&](const char* reason) {
    objects_.tessera_resource = ResourceOf(2, "False", reason, "False");
    EXPECT_EQ(Component("resource Tessera").detail, fmt::format("{}: m", reason));
    return Component("resource Tessera").fix;
  };
  EXPECT_EQ(fix("Forbidden"), "tessera upgrade");
  EXPECT_THAT(fix("ObjectContested"), HasSubstr("stop the other client"));
  EXPECT_THAT(fix("NotFound"), HasSubstr("install what defines the type"));
  EXPECT_THAT(fix("APIServerThrottles"), HasSubstr("the operator retries"));
  EXPECT_THAT(fix("APIServerThrottles"), HasSubstr("flowschemas,prioritylevelconfigurations"));
  EXPECT_THAT(fix("APIServerUnreachable"), HasSubstr("kubectl get --raw /readyz"));
  EXPECT_EQ(fix("ImagePullBackOff"), "kubectl describe tessera tessera");
}

TEST_F(InstallationStatusTest, NamesAnOperatorThatIsMissingOrScaledToZero) {
  objects_.tessera_resource = ResourceOf(2, "True", "AllComponentsReady", "False");
  EXPECT_THAT(Component("operator").detail,
              HasSubstr("changes of the resource Tessera have no effect"));
  objects_.operator_deployment = Object(R"({"spec":{"replicas":0},"status":{}})");
  EXPECT_FALSE(Evaluate().works());
  EXPECT_THAT(Component("operator").fix, HasSubstr("scale deployment/tessera-operator"));
  objects_.operator_deployment = Object(R"({"spec":{"replicas":2},"status":{"readyReplicas":1}})");
  objects_.pods.push_back(PodOf("tessera-operator", "op-1",
                                R"({"containerStatuses":[{"name":"operator","state":{"waiting":)"
                                R"({"reason":"ErrImagePull","message":"not found"}}}]})"));
  EXPECT_EQ(Component("operator").detail,
            "1 of 2 replicas ready; op-1: container operator: ErrImagePull: not found");
  objects_.operator_deployment = Status(Code::kPermissionDenied, "forbidden");
  EXPECT_TRUE(Component("operator").works);
  EXPECT_EQ(Component("operator").detail, "forbidden");
  EXPECT_TRUE(Component("operator").is_unknown);
}

TEST_F(InstallationStatusTest, ShowsDriverContainersAndTheNodeOfTheBrokenOne) {
  objects_.driver_daemonsets = std::vector{Object(
      R"({"metadata":{"namespace":"gpu-operator","name":"nvidia-driver-daemonset"},"status":)"
      R"({"desiredNumberScheduled":2,"numberReady":1,"updatedNumberScheduled":1}})")};
  objects_.driver_pods = {Object(
      R"({"metadata":{"name":"driver-x","namespace":"gpu-operator"},"spec":{"nodeName":"n1"},)"
      R"("status":{"containerStatuses":[{"name":"nvidia-driver-ctr","state":{"terminated":)"
      R"({"exitCode":1}}}]}})")};
  EXPECT_EQ(Component("driver gpu-operator/nvidia-driver-daemonset").detail,
            "1 of 2 nodes ready, 1 of 2 have the newest driver");
  EXPECT_EQ(OnlyNode().detail, "driver-x: container nvidia-driver-ctr ended with exit code 1");
  EXPECT_EQ(OnlyNode().fix,
            "kubectl -n gpu-operator logs driver-x -c nvidia-driver-ctr --previous");
}

TEST_F(InstallationStatusTest, ATerminatingPodDoesNotHideItsReplacement) {
  Json old_agent = PodOf("tessera-agent", "agent-old", "{}");
  old_agent.Find("metadata")->Set("deletionTimestamp", Json::String("2026-01-01T00:00:00Z"));
  objects_.pods.push_back(old_agent);
  EXPECT_TRUE(Evaluate().works());
  std::ranges::reverse(objects_.pods);
  EXPECT_TRUE(Evaluate().works());
  const auto pods = PodsByNode(objects_.pods, "tessera-agent");
  EXPECT_EQ(pods.at("n1")->Find("metadata")->StringAt("name").value(), "agent-x");
  // Without a new pod, the old pod counts.
  objects_.pods = {old_agent};
  EXPECT_EQ(OnlyNode().detail, "agent-old: not ready yet");
}

TEST_F(InstallationStatusTest, ATableHasAtMostTwentyNodes) {
  for (int i = 0; i < 24; ++i) {
    objects_.nodes.push_back(NodeOf(fmt::format("broken-{:02}", i), kHealthy, "False"));
  }
  const std::string text = ShowStatus(Evaluate(), {}).value();
  EXPECT_THAT(text, HasSubstr("broken-19"));
  EXPECT_THAT(text, Not(HasSubstr("broken-20")));
  EXPECT_THAT(text, HasSubstr("and 4 more nodes with problems"));
  EXPECT_THAT(ShowStatus(Evaluate(), {.format = OutputFormat::kWide}).value(),
              HasSubstr("broken-23"));
}

TEST_F(InstallationStatusTest, SortsAndSelectsAsOtherLists) {
  for (const char* name : {"a", "c", "b"}) {
    objects_.nodes.push_back(NodeOf(name, kHealthy, "False"));
  }
  const auto shown = [&](StyleOptions options) {
    return ShowStatus(Evaluate(), MakeStyle(options, false).value()).value();
  };
  const std::string nodes =
      shown({.field_selector = "kind=Node,metadata.name!=b", .no_headers = true});
  EXPECT_EQ(nodes,
            "a   problem   the kubelet does not report the node as ready\n"
            "              fix: kubectl describe node a\n"
            "c   problem   the kubelet does not report the node as ready\n"
            "              fix: kubectl describe node c\n");
  EXPECT_EQ(shown({.output = "name", .field_selector = "works=false"}),
            "status/a\nstatus/b\nstatus/c\n");
  const std::string sorted = shown({.sort_by = ".metadata.name"});
  EXPECT_LT(sorted.find("GPUs"), sorted.find("agent"));
}

TEST_F(InstallationStatusTest, NamesANodeWithoutAgentOrKubelet) {
  objects_.pods.erase(objects_.pods.begin());
  objects_.nodes[0] = NodeOf("n1", R"({"type":"GPUReady","status":"False","reason":"NoGPU"})");
  EXPECT_EQ(OnlyNode().detail, "it has GPUs, and no agent runs on it");
  // The condition outlives the agent.
  objects_.nodes[0] = NodeOf("n1", R"({"type":"GPUReady","status":"True","reason":"GPUsHealthy"})");
  EXPECT_EQ(OnlyNode().detail, "it has GPUs, and no agent runs on it");
  objects_.nodes[0] = NodeOf("n1", kHealthy, "Unknown");
  EXPECT_EQ(OnlyNode().fix, "kubectl describe node n1");
}

TEST_F(InstallationStatusTest, NamesASchedulerWithoutLeaderOrCertificate) {
  objects_.scheduler_endpoints = Object(R"({"endpoints":[]})");
  EXPECT_EQ(Component("scheduler").detail, "2 of 2 replicas ready, no replica leads");
  objects_.webhook = Object(R"({"webhooks":[{"clientConfig":{}}]})");
  EXPECT_THAT(Component("webhook").detail, HasSubstr("has not written its certificate"));
}

TEST_F(InstallationStatusTest, ReportsThatKubeSchedulerIsNotConnected) {
  objects_.leader_metrics =
      std::string("tessera_scheduler_request_duration_seconds_count{verb=\"filter\"} 0\n");
  EXPECT_TRUE(Evaluate().works());
  EXPECT_THAT(Component("kube-scheduler").fix, HasSubstr("https://CLUSTER_IP:9410/v1/extender"));
}

TEST_F(InstallationStatusTest, NamesPodsForWhichKubeSchedulerCannotReachTheExtender) {
  const auto fix = [&](const std::string& message) {
    Json pod = Object(R"({"metadata":{"name":"train","namespace":"ml"}})");
    pod.Set("status",
            Json::MakeObject({{"conditions", Json::MakeArray({Json::MakeObject(
                                                 {{"type", Json::String("PodScheduled")},
                                                  {"status", Json::String("False")},
                                                  {"reason", Json::String("SchedulerError")},
                                                  {"message", Json::String(message)}})})}}));
    objects_.failed_placements = {pod};
    EXPECT_FALSE(Evaluate().works());
    EXPECT_EQ(Component("kube-scheduler").detail, "cannot place 1 pod: ml/train: " + message);
    return Component("kube-scheduler").fix;
  };
  const std::string post = "Post \"https://10.96.0.9:9410/v1/extender/filter\": ";
  EXPECT_THAT(fix(post + "dial tcp 10.96.0.9:9410: connect: connection refused"),
              HasSubstr("NetworkPolicies"));
  EXPECT_THAT(fix(post + "context deadline exceeded"), HasSubstr("CLUSTER-IP"));
  EXPECT_THAT(fix(post + "tls: failed to verify certificate: x509: certificate signed by unknown "
                         "authority"),
              HasSubstr("Secret tessera-system/tessera-scheduler-client"));
  EXPECT_EQ(fix("failed filter with extender at URL https://10.96.0.9:9410/v1/extender/filter, "
                "code 503"),
            "kubectl -n tessera-system logs deployment/tessera-scheduler");
  EXPECT_EQ(fix("running Bind plugin: conflict"), "kubectl -n ml describe pod train");
  objects_.failed_placements.push_back(objects_.failed_placements.front());
  EXPECT_THAT(Component("kube-scheduler").detail, HasSubstr("cannot place 2 pods: ml/train, ...:"));
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
