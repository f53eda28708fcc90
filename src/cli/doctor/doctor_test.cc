// SPDX-License-Identifier: Apache-2.0
// Each check has a planted failure here; a check without a planted failure fails the test.
#include "src/cli/doctor/checks.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "api/names.h"
#include "src/cli/testing/fake_cluster.h"
#include "src/device/assignment.h"

namespace tessera::cli {
namespace {

Json Parsed(const std::string& text) { return ParseJson(text).value(); }

Json NodeWithGpus(const std::string& name, const std::function<void(device::Gpu&)>& change = {},
                  const std::string& driver = "") {
  std::string text =
      ledger::testing::GpuNode(name, 2).meta.annotations.at(std::string(names::kAnnotationDevices));
  device::NodeInventory inventory = device::DecodeNodeInventory(text).value();
  if (change) change(inventory.gpus[0]);
  if (!driver.empty()) inventory.driver_version = driver;
  Json node = Parsed(fmt::format(
      R"({{"metadata":{{"name":"{}","labels":{{"nvidia.com/gpu.present":"true"}},)"
      R"("annotations":{{}}}},)"
      R"("spec":{{}},"status":{{"capacity":{{"nvidia.com/gpu":"2","aliyun.com/gpu-mem":"160"}},)"
      R"("conditions":[{{"type":"Ready","status":"True"}},)"
      R"({{"type":"GPUReady","status":"True","reason":"GPUsHealthy"}}]}}}})",
      name));
  node.Find("metadata")
      ->Find("annotations")
      ->Set(names::kAnnotationDevices,
            Json::String(device::EncodeNodeInventory(inventory).value()));
  return node;
}

Json PodOn(const std::string& node, const std::string& resource, const std::string& assignment) {
  Json pod =
      Parsed(fmt::format(R"({{"metadata":{{"namespace":"ml","name":"train","annotations":{{}}}},)"
                         R"("spec":{{"nodeName":"{}",)"
                         R"("containers":[{{"name":"main","resources":{{"limits":{{{}}}}}}}]}},)"
                         R"("status":{{"phase":"Running"}}}})",
                         node, resource.empty() ? "" : fmt::format(R"("{}":"1")", resource)));
  if (!assignment.empty()) {
    pod.Find("metadata")
        ->Find("annotations")
        ->Set(names::kAnnotationAssignment, Json::String(assignment));
  }
  return pod;
}

std::string AssignmentOf(const std::string& uuid, int64_t milli) {
  device::Assignment assignment;
  assignment.containers["main"] = {{uuid, MilliGpu(milli), GiB(80)}};
  return device::EncodeAssignment(assignment).value();
}

constexpr const char* kAgentPod =
    R"({"metadata":{"name":"agent-x","namespace":"tessera-system",)"
    R"("labels":{"app.kubernetes.io/name":)"
    R"("tessera-agent"}},"spec":{"nodeName":"n1"},"status":{"podIP":"10.0.0.1",)"
    R"("conditions":[{"type":"Ready","status":"True"}]}})";
constexpr const char* kSchedulerPod =
    R"({"metadata":{"name":"scheduler-x","namespace":"tessera-system","labels":)"
    R"({"app.kubernetes.io/name":"tessera-scheduler"}},"status":{"podIP":"10.0.0.2",)"
    R"("conditions":[{"type":"Ready","status":"True"}]}})";

// A cluster without a failure, with one pod on one of two GPUs.
ClusterFacts Healthy() {
  ClusterFacts facts;
  facts.nodes->push_back(NodeWithGpus("n1"));
  facts.pods->push_back(
      PodOn("n1", "nvidia.com/gpu", AssignmentOf(ledger::testing::UuidOf("n1", 0), 1000)));
  facts.runtime_classes->push_back(Parsed(R"({"metadata":{"name":"nvidia"}})"));
  InstallationObjects& objects = facts.installation;
  objects.agent_daemonsets =
      std::vector{Parsed(R"({"status":{"desiredNumberScheduled":1,"numberReady":1}})")};
  objects.scheduler_deployment = Parsed(R"({"spec":{"replicas":1},"status":{"readyReplicas":1}})");
  objects.scheduler_endpoints = Parsed(R"({"endpoints":[{"addresses":["10.0.0.2"]}]})");
  objects.leader_metrics = std::string(
      "tessera_build_info{version=\"1\"} 1\n"
      "tessera_scheduler_request_duration_seconds_count{verb=\"filter\"} 3\n");
  objects.pods = {Parsed(kAgentPod), Parsed(kSchedulerPod)};
  objects.nodes = *facts.nodes;
  facts.agent_metrics.emplace("n1", std::string("tessera_build_info{version=\"1\"} 1\n"));
  facts.agent_uses.emplace("n1", UsagePage());
  facts.DeriveInventoriesAndAssignments();
  return facts;
}

// Plants one failure into the facts of a healthy cluster.
using Plant = std::function<void(ClusterFacts&)>;

Json& Label(ClusterFacts& facts, std::string_view label, std::string_view value) {
  return facts.nodes->at(0).Find("metadata")->Find("labels")->Set(label, Json::String(value));
}
Plant Condition(std::string_view type, std::string_view status, std::string_view reason) {
  return [=](ClusterFacts& facts) {
    for (Json& condition : facts.nodes->at(0).Find("status")->Find("conditions")->items()) {
      if (condition.StringAt("type").value() != type) continue;
      condition.Set("status", Json::String(status));
      condition.Set("reason", Json::String(reason));
      condition.Set("message", Json::String("planted"));
    }
  };
}
Plant Metric(const std::string& line) {
  return [=](ClusterFacts& facts) { *facts.agent_metrics.at("n1") += line + "\n"; };
}
Plant Use(const std::function<void(ContainerUse&)>& change) {
  return [=](ClusterFacts& facts) {
    ContainerUse use{.node = "n1", .ns = "ml", .pod = "train", .container = "main", .gpu = "0"};
    change(use);
    facts.agent_uses.at("n1")->uses.push_back(use);
  };
}
Plant Gpu(const std::function<void(device::Gpu&)>& change) {
  return [=](ClusterFacts& facts) { facts.nodes->at(0) = NodeWithGpus("n1", change); };
}
Plant PodStatus(const std::string& json) {
  return [=](ClusterFacts& facts) { facts.pods->at(0).Set("status", Parsed(json)); };
}
Plant SystemPod(const std::string& status) {
  return [=](ClusterFacts& facts) {
    Json pod = Parsed(kAgentPod);
    pod.Set("status", Parsed(status));
    facts.pods->push_back(pod);
    facts.installation.pods[0] = pod;
  };
}
void Oversell(ClusterFacts& facts) {
  facts.pods->push_back(
      PodOn("n1", "nvidia.com/gpu", AssignmentOf(ledger::testing::UuidOf("n1", 0), 500)));
}
void FailMany(ClusterFacts& facts) {
  for (int i = 0; i < 25; ++i) {
    Json pod = PodOn("n1", "nvidia.com/gpu", "");
    pod.Set("status", Parsed(R"({"phase":"Failed"})"));
    facts.pods->push_back(pod);
  }
}

const std::map<std::string, Plant>& PlantedFailures() {
  using device::Health;
  static const std::map<std::string, Plant> plants{
      {"driver-not-ready", Condition("GPUReady", "False", "DriverNotReady")},
      {"runtime-not-configured", Condition("GPUReady", "False", "RuntimeNotConfigured")},
      {"node-not-ready", Condition("Ready", "Unknown", "NodeStatusUnknown")},
      {"gpu-unhealthy", Gpu([](device::Gpu& gpu) { gpu.health = Health::Unhealthy("XID 79"); })},
      {"gpu-suspect", Gpu([](device::Gpu& gpu) {
         gpu.health = {Health::State::kSuspect, "XID 31"};
       })},
      {"not-registered",
       [](ClusterFacts& facts) {
         facts.nodes->at(0).Find("status")->Find("capacity")->Erase("nvidia.com/gpu");
       }},
      {"label-without-gpu",
       [](ClusterFacts& facts) {
         facts.nodes->push_back(
             Parsed(R"({"metadata":{"name":"n2","labels":{"nvidia.com/gpu.present":"true"}}})"));
       }},
      {"paused-labels",
       [](ClusterFacts& facts) {
         Label(facts, "nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change");
       }},
      {"mig-change-stuck",
       [](ClusterFacts& facts) { Label(facts, "nvidia.com/mig.config.state", "failed"); }},
      {"driver-upgrade-stuck",
       [](ClusterFacts& facts) {
         Label(facts, "nvidia.com/gpu-driver-upgrade-state", "upgrade-required");
       }},
      {"mixed-drivers",
       [](ClusterFacts& facts) { facts.nodes->push_back(NodeWithGpus("n2", {}, "999.1")); }},
      {"too-many-device-ids",
       [](ClusterFacts& facts) {
         facts.nodes->at(0)
             .Find("status")
             ->Find("capacity")
             ->Set("aliyun.com/gpu-mem", Json::String("163840"));
       }},
      {"agent-silent",
       [](ClusterFacts& facts) {
         facts.agent_metrics.at("n1") = Status(Code::kUnavailable, "no answer");
       }},
      {"driver-hangs", Metric("tessera_nvml_stuck_calls 1")},
      {"stale-metrics", Metric("tessera_exporter_sample_age_seconds{uuid=\"GPU-1\"} 300")},
      {"xids-reported", Metric("tessera_xids_total{uuid=\"GPU-1\",xid=\"31\"} 2")},
      {"containers-without-gpus", Metric("tessera_unredeemed_tokens 1")},
      {"gpus-of-gone-pods", Metric("tessera_leaving_containers 1")},
      {"kubelet-named-other-gpus", Metric("tessera_grants_named_other_gpus_total 4")},
      {"journal-repaired", Metric("tessera_journal_repairs_total 1")},
      {"starts-rejected", Metric("tessera_starts_refused_total 1")},
      {"limiter-bypassed", Use([](ContainerUse& use) { use.without_limiter = 1; })},
      {"share-not-enforced", Use([](ContainerUse& use) { use.limited = false; })},
      {"memory-limit-reached", Use([](ContainerUse& use) { use.rejected_allocations = 3; })},
      {"admission-errors", PodStatus(R"({"phase":"Failed","reason":"UnexpectedAdmissionError"})")},
      {"failed-pods-pile-up", FailMany},
      {"unassigned-pods",
       [](ClusterFacts& facts) { facts.pods->at(0) = PodOn("n1", "aliyun.com/gpu-mem", ""); }},
      {"assigned-gpu-gone",
       [](ClusterFacts& facts) {
         facts.pods->push_back(
             PodOn("n1", "nvidia.com/gpu",
                   AssignmentOf("GPU-00000000-dead-dead-dead-000000000000", 1000)));
       }},
      {"gpu-oversold", Oversell},
      {"start-errors",
       PodStatus(R"({"phase":"Running","containerStatuses":[{"name":"main","state":{"waiting":)"
                 R"({"reason":"RunContainerError","message":"grant.sock: refused"}}}]})")},
      {"visible-devices-without-request",
       [](ClusterFacts& facts) {
         Json pod = PodOn("n1", "", "");
         pod.Find("spec")
             ->Find("containers")
             ->items()[0]
             .Set("env", Parsed(R"([{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}])"));
         facts.pods->push_back(pod);
       }},
      {"test-left",
       [](ClusterFacts& facts) {
         facts.pods->push_back(
             Parsed(R"({"metadata":{"name":"share","namespace":"tessera-test-1","labels":)"
                    R"({"app.kubernetes.io/name":"tessera-test"}},"status":{"phase":"Failed"}})"));
       }},
      {"waiting-pods",
       PodStatus(R"({"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False",)"
                 R"("message":"0/1 nodes"}]})")},
      {"component-broken",
       [](ClusterFacts& facts) {
         facts.installation.scheduler_endpoints = Parsed(R"({"endpoints":[]})");
       }},
      {"agent-not-ready",
       SystemPod(R"({"initContainerStatuses":[{"name":"install-runtime","state":{"waiting":)"
                 R"({"reason":"ErrImagePull"}}}]})")},
      {"component-restarts",
       SystemPod(R"({"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":)"
                 R"([{"name":"agent","restartCount":1,"lastState":{"terminated":)"
                 R"({"reason":"OOMKilled"}}}]})")},
      {"version-skew", Metric("tessera_build_info{version=\"2\"} 1")},
      {"other-device-plugin",
       [](ClusterFacts& facts) {
         facts.daemon_sets->push_back(Parsed(
             R"({"metadata":{"namespace":"kube-system","name":"nv"},"spec":{"template":{"spec":)"
             R"({"containers":[{"image":"nvcr.io/nvidia/k8s-device-plugin:v0.17"}]}}},)"
             R"("status":{"desiredNumberScheduled":3}})"));
       }},
      {"runtime-class-missing",
       [](ClusterFacts& facts) {
         facts.runtime_classes->clear();
         facts.pods->at(0).Find("spec")->Set("runtimeClassName", Json::String("nvidia"));
       }},
      {"extender-not-asked",
       [](ClusterFacts& facts) {
         facts.installation.leader_metrics = std::string("tessera_build_info{version=\"1\"} 1\n");
       }},
      {"quota-invalid",
       [](ClusterFacts& facts) { facts.quota = Parsed(R"({"data":{"gpu_quota":"{"}})"); }},
      {"not-checked",
       [](ClusterFacts& facts) {
         facts.daemon_sets = Status(Code::kPermissionDenied, "daemonsets is forbidden");
       }},
  };
  return plants;
}

std::set<std::string> ChecksIn(const std::vector<DoctorFinding>& findings) {
  std::set<std::string> ids;
  for (const DoctorFinding& finding : findings) ids.insert(finding.check);
  return ids;
}

TEST(DoctorTest, FindsNothingWhereAllWorks) {
  EXPECT_EQ(ChecksIn(Diagnose(Healthy())), std::set<std::string>());
  EXPECT_EQ(ShowFindings({}, {}).value(),
            fmt::format("{} checks found nothing.\n", AllChecks().size()));
}

TEST(DoctorTest, EachCheckFindsItsPlantedFailureAndAtMostOneOtherCheckDoes) {
  for (const DoctorCheck& check : AllChecks()) {
    const auto plant = PlantedFailures().find(check.id);
    ASSERT_NE(plant, PlantedFailures().end()) << check.id << " has no planted failure";
    ClusterFacts facts = Healthy();
    plant->second(facts);
    facts.DeriveInventoriesAndAssignments();
    facts.installation.nodes = *facts.nodes;
    const std::vector<DoctorFinding> findings = Diagnose(facts);
    const std::set<std::string> found = ChecksIn(findings);
    EXPECT_TRUE(found.contains(check.id)) << check.id;
    EXPECT_LE(found.size(), 2u) << check.id << " makes more than one other check report";
    for (const DoctorFinding& finding : findings) {
      EXPECT_FALSE(finding.place.empty() || finding.problem.empty() || finding.fix.empty())
          << check.id << ": " << finding.place << ": " << finding.problem << ": " << finding.fix;
      // The fix names no file of this tree, which administrators do not have.
      EXPECT_EQ(finding.fix.find("docs/"), std::string::npos) << finding.fix;
      EXPECT_EQ(finding.fix.find("deploy/"), std::string::npos) << finding.fix;
    }
  }
  EXPECT_EQ(PlantedFailures().size(), AllChecks().size());
}

TEST(DoctorTest, AMissingRightIsNotReportedAsASilentAgent) {
  ClusterFacts facts = Healthy();
  const Status denied(Code::kPermissionDenied, "pods/proxy is forbidden");
  facts.agent_metrics.at("n1") = denied;
  facts.agent_metrics.emplace("n2", denied);
  const std::vector<DoctorFinding> findings = Diagnose(facts);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_FALSE(findings[0].is_serious);
  EXPECT_NE(findings[0].fix.find("tessera-view-usage"), std::string::npos);
}

TEST(DoctorTest, AmountsHaveUnitsAndCountsHavePlurals) {
  ClusterFacts facts = Healthy();
  Use([](ContainerUse& use) {
    use.rejected_allocations = 1;
    use.limit = GiB(4);
    use.peak = Bytes(int64_t{3} << 29);
  })(facts);
  Oversell(facts);
  facts.DeriveInventoriesAndAssignments();
  std::vector<DoctorFinding> findings = Diagnose(facts);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].problem,
            "pods hold 1.5 of this GPU's compute and 160 GiB of its 80 GiB memory, more than it "
            "has");
  EXPECT_EQ(findings[1].problem, "1 allocation was rejected on GPU 0 of node n1");
  EXPECT_EQ(findings[1].cause, "the container may use 4 GiB, and used up to 1.5 GiB");
  facts.agent_uses.at("n1")->uses[0].rejected_allocations = 2;
  findings = Diagnose(facts);
  EXPECT_EQ(findings[1].problem, "2 allocations were rejected on GPU 0 of node n1");
}

TEST(DoctorTest, TheAgentsPodIsKnownByItsLabel) {
  const Json failing = Parsed(R"({"initContainerStatuses":[{"name":"wait","state":{"waiting":)"
                              R"({"reason":"ErrImagePull"}}}]})");
  ClusterFacts facts = Healthy();
  facts.installation.pods[0].Set("status", failing);
  facts.installation.pods[0].Find("metadata")->Set("name", Json::String("x"));
  EXPECT_TRUE(ChecksIn(Diagnose(facts)).contains("agent-not-ready"));

  facts = Healthy();
  Json driver = Parsed(kAgentPod);
  driver.Find("metadata")->Set("name", Json::String("driver-of-agent"));
  driver.Find("metadata")->Erase("labels");
  driver.Set("status", failing);
  facts.installation.driver_pods = {driver};
  EXPECT_FALSE(ChecksIn(Diagnose(facts)).contains("agent-not-ready"));
}

TEST(DoctorTest, SeriousFindingsComeFirstAndHaveCauseAndFix) {
  ClusterFacts facts = Healthy();
  PlantedFailures().at("xids-reported")(facts);
  PlantedFailures().at("driver-hangs")(facts);
  const std::vector<DoctorFinding> findings = Diagnose(facts);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_TRUE(findings[0].is_serious);
  EXPECT_EQ(
      ShowFindings({findings[1]}, {}).value(),
      "KIND   CHECK           WHERE                WHAT\n"
      "note   xids-reported   node n1, GPU GPU-1   the driver has reported XID 31 since the agent "
      "started, count: 2\n"
      "                                            cause: an error report of the driver\n"
      "                                            fix: tessera gpus n1 shows whether the "
      "GPU is healthy, and what to do\n");
  const Json json =
      ParseJson(ShowFindings(findings, MakeStyle({.output = "json"}, false).value()).value())
          .value();
  EXPECT_EQ(json.Find("items")->items().size(), 2u);
  EXPECT_EQ(json.Find("items")->items()[0].StringAt("where").value(), "node n1");
}

TEST(DoctorTest, SumsTheSamplesOfAMetric) {
  EXPECT_EQ(SumOf("a_total{x=\"1\"} 2\na_total 3\na_total_more 9\n", "a_total"), 5);
}

}  // namespace
}  // namespace tessera::cli
