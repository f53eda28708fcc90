// SPDX-License-Identifier: Apache-2.0
// `tessera status` where objects of the installation are missing or changed, against a fake API
// server.
#include "src/cli/installation_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/version.h"
#include "src/cli/install/installer.h"
#include "src/cli/install/inventory.h"
#include "src/cli/install/operator_installer.h"
#include "src/cli/testing/command_fixture.h"
#include "src/cli/testing/installed_cluster.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The objects of an installation, without pods: the components have problems in all tests.
class InstallationAuditTest : public testing::CommandFixture {
 protected:
  InstallationAuditTest() { testing::PutDiscovery(server_); }

  void InstallDirectly(const std::string& settings = "{}") {
    const Json spec = ParseYaml(settings).value();
    InstallationRecord installation{.version = std::string(kTesseraVersion), .spec = spec};
    const std::vector<Json> objects = ObjectsToInstall(spec).value();
    for (const Json& object : objects) installation.objects.push_back(IdOf(object));
    testing::PutAll(server_, objects);
    testing::PutAll(server_, {InventoryObject(installation)});
  }
  void InstallByHelm(const std::string& settings = "{}") {
    const Json spec = ParseYaml(settings).value();
    testing::PutAll(server_, testing::AsInstalledByHelm(ObjectsToInstall(spec).value()));
  }
  void InstallByOperator() {
    testing::PutAll(server_, OperatorObjects(Json::MakeObject()).value());
    testing::PutAll(server_, ObjectsToInstall(Json::MakeObject()).value());
  }
  void Remove(const ObjectId& id) { server_.Remove(testing::PathOf(id)); }
  // Records that `installer` set all fields of the object but `edited`, which kubectl-edit set.
  void SetOwners(const ObjectId& id, const std::string& installer, const std::string& edited) {
    Json object = *server_.Find(testing::PathOf(id));
    Json of_installer = Json::MakeObject(), of_editor = Json::MakeObject();
    for (const auto& [name, unused] : object.members()) {
      (name == edited ? of_editor : of_installer).Set("f:" + name, Json::MakeObject());
    }
    Json labels = Json::MakeObject();
    for (const auto& [name, unused] : object.Find("metadata")->Find("labels")->members()) {
      labels.Set("f:" + name, Json::MakeObject());
    }
    of_installer.Set("f:metadata", Json::MakeObject({{"f:labels", std::move(labels)},
                                                     {"f:annotations", Json::MakeObject()}}));
    const auto entry = [](const std::string& client, Json fields) {
      return Json::MakeObject({{"manager", Json::String(client)}, {"fieldsV1", std::move(fields)}});
    };
    object.Find("metadata")
        ->Set("managedFields", Json::MakeArray({entry(installer, std::move(of_installer)),
                                                entry("kubectl-edit", std::move(of_editor))}));
    server_.Put(testing::PathOf(id), object);
  }
  // The line of a component and its fix; "" if `tessera status` has no such line.
  std::string LineOf(const std::string& component) {
    const std::string out = Run({"status", "--no-headers"}).out;
    const size_t begin = out.starts_with(component + " ") ? 0 : out.find("\n" + component + " ");
    if (begin == out.npos) return "";
    const size_t fix = out.find('\n', begin + 1);
    return out.substr(begin, out.find('\n', fix + 1) - begin);
  }

  const ObjectId role_{"rbac.authorization.k8s.io/v1", "ClusterRole", "", "tessera-agent"};
  const ObjectId binding_{"rbac.authorization.k8s.io/v1", "RoleBinding", "tessera-system",
                          "tessera-scheduler"};
  const ObjectId service_{"v1", "Service", "tessera-system", "tessera-scheduler"};
  const ObjectId webhook_{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "",
                          "tessera-webhook"};
  const ObjectId agents_{"apps/v1", "DaemonSet", "tessera-system", "tessera-agent"};
};

TEST_F(InstallationAuditTest, NamesEachMissingObjectAndTheCommandThatRestoresIt) {
  InstallDirectly();
  EXPECT_EQ(LineOf("objects"), "");
  for (const ObjectId& id : {role_, binding_, service_, webhook_, agents_}) Remove(id);
  const std::string line = LineOf("objects");
  for (const ObjectId& id : {role_, binding_, service_, webhook_, agents_}) {
    EXPECT_THAT(line, HasSubstr(id.Text()));
  }
  EXPECT_THAT(line, HasSubstr("problem"));
  EXPECT_THAT(line, HasSubstr("fix: tessera upgrade"));
  EXPECT_THAT(LineOf("agent"), HasSubstr("fix: tessera upgrade"));
  EXPECT_THAT(LineOf("webhook"), HasSubstr("ValidatingWebhookConfiguration tessera-webhook is"));
  EXPECT_THAT(Run({"doctor", "--no-headers"}).out, HasSubstr("component-broken   objects "));
  for (const char* name : {"agent", "scheduler", "webhook", "view"}) {
    for (const char* kind : {"ClusterRole", "ClusterRoleBinding"}) {
      Remove({role_.api_version, kind, "", fmt::format("tessera-{}", name)});
    }
  }
  EXPECT_THAT(LineOf("objects"), HasSubstr(" and 1 more\n"));
}

TEST_F(InstallationAuditTest, SettingsOfTheInstallationDecideWhatShouldExist) {
  InstallDirectly(
      "{webhook: {enabled: false}, pools: [{name: t4, nodeSelector: {a: b}}],"
      " dashboards: {enabled: true}}");
  EXPECT_EQ(LineOf("objects"), "");
  EXPECT_THAT(LineOf("webhook"), HasSubstr("off"));
  Remove({"apps/v1", "DaemonSet", "tessera-system", "tessera-agent-t4"});
  Remove({"v1", "ConfigMap", "tessera-system", "tessera-dashboard-pod"});
  EXPECT_THAT(LineOf("objects"),
              HasSubstr("missing: DaemonSet tessera-system/tessera-agent-t4, ConfigMap "
                        "tessera-system/tessera-dashboard-pod\n"));
}

TEST_F(InstallationAuditTest, NamesTheReleaseOfHelmAndGuessesItsSettings) {
  InstallByHelm("{webhook: {enabled: false}, console: {enabled: true}}");
  EXPECT_EQ(LineOf("objects"), "");
  EXPECT_THAT(LineOf("webhook"), HasSubstr("off"));
  InstallByHelm();
  Remove(webhook_);
  Remove(service_);
  const std::string line = LineOf("objects");
  EXPECT_THAT(line, HasSubstr(webhook_.Text()));
  EXPECT_THAT(line, HasSubstr(service_.Text()));
  EXPECT_THAT(line, HasSubstr("fix: helm upgrade -n tessera-system gpus CHART --reuse-values"));
}

TEST_F(InstallationAuditTest, AHelmReleaseOfNvidiasOperatorIsNotTakenForTessera) {
  testing::PutAll(server_, ObjectsToInstall(Json::MakeObject()).value());  // by kubectl
  testing::PutAll(server_, {ParseYaml("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: "
                                      "{name: nvidia, annotations: {meta.helm.sh/release-name: "
                                      "gpu-operator}}}")
                                .value()});
  EXPECT_EQ(LineOf("objects"), "");
  Remove(service_);
  EXPECT_THAT(LineOf("objects"), HasSubstr("fix: install it with the tool of the installation"));
}

TEST_F(InstallationAuditTest, SaysWhyTheOperatorDoesNotRestoreAnObject) {
  InstallByOperator();
  EXPECT_EQ(LineOf("objects"), "");
  EXPECT_EQ(LineOf("operator's objects"), "");
  Remove(role_);
  EXPECT_THAT(LineOf("objects"), HasSubstr("not restored: no replica of the operator is ready"));
  EXPECT_THAT(LineOf("objects"), HasSubstr("describe deployment tessera-operator"));
  Remove({"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "tessera-operator"});
  EXPECT_THAT(LineOf("operator's objects"),
              HasSubstr("missing: ClusterRoleBinding tessera-operator\n"));
  EXPECT_THAT(LineOf("operator's objects"), HasSubstr("tessera upgrade"));
  const ObjectId deployment{"apps/v1", "Deployment", "tessera-system", "tessera-operator"};
  Json running = *server_.Find(testing::PathOf(deployment));
  running.Set("status", ParseYaml("{readyReplicas: 2}").value());
  testing::PutAll(server_, {running});
  EXPECT_THAT(LineOf("objects"), HasSubstr("fix: the operator restores it within seconds"));
  Json resource = *server_.Find(testing::PathOf(TesseraResourceId()));
  resource.Set("status", ParseYaml("conditions: [{type: Degraded, status: 'True', reason: "
                                   "Forbidden, message: cannot patch}]\n")
                             .value());
  testing::PutAll(server_, {resource});
  EXPECT_THAT(LineOf("objects"), HasSubstr("not restored: Forbidden: cannot patch"));
  EXPECT_THAT(LineOf("objects"), HasSubstr("tessera upgrade"));
}

TEST_F(InstallationAuditTest, IsSilentAboutObjectsThatTheUserMayNotList) {
  InstallDirectly();
  Remove(role_);
  Remove(service_);
  server_.Refuse("clusterroles", 403);
  const std::string line = LineOf("objects");
  EXPECT_THAT(line, HasSubstr("missing: " + service_.Text() + "\n"));
  EXPECT_THAT(line, Not(HasSubstr("forbidden")));
}

TEST_F(InstallationAuditTest, FindsPodsThatKubeSchedulerCannotPlace) {
  InstallDirectly();
  const auto put = [&](const char* name, const char* resource, const char* reason,
                       const char* message) {
    server_.Put(
        fmt::format("/api/v1/namespaces/ml/pods/{}", name),
        ParseJson(
            fmt::format(R"({{"metadata":{{"name":"{}","namespace":"ml"}},"spec":{{)"
                        R"("containers":[{{"resources":{{"limits":{{"{}":"1"}}}}}}]}},)"
                        R"("status":{{"phase":"Pending","conditions":[{{"type":)"
                        R"("PodScheduled","status":"False","reason":"{}","message":"{}"}}]}}}})",
                        name, resource, reason, message))
            .value());
  };
  put("waits", "nvidia.com/gpu", "Unschedulable", "0/3 nodes are available");
  put("other", "cpu", "SchedulerError", "etcd is full");
  EXPECT_THAT(LineOf("kube-scheduler"), HasSubstr("ok"));
  put("train", "nvidia.com/gpu", "SchedulerError",
      "Post https://10.96.0.9:9410/v1/extender/filter: connection refused");
  EXPECT_THAT(LineOf("kube-scheduler"),
              HasSubstr("problem   cannot place 1 pod: ml/train: Post https://10.96.0.9:9410"));
  EXPECT_THAT(LineOf("kube-scheduler"), HasSubstr("fix: let kube-scheduler reach port 9410"));
}

TEST_F(InstallationAuditTest, SaysThatTesseraIsNotInstalled) {
  testing::PutAll(server_, {ParseYaml("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: "
                                      "{name: nvidia}}")
                                .value()});
  const testing::CommandResult ran = Run({"status", "--no-headers"});
  EXPECT_EQ(ran.out,
            "Tessera   problem   not installed\n"
            "                    fix: tessera install\n");
  EXPECT_EQ(ran.exit_code, 1);
  // An operator without its resource has installed nothing either.
  const std::vector<Json> objects = OperatorObjects(Json::MakeObject()).value();
  for (const Json& object : objects) {
    if (IdOf(object).kind == "Deployment") testing::PutAll(server_, {object});
  }
  EXPECT_THAT(LineOf("resource Tessera"), HasSubstr("missing, so the operator installs nothing"));
  EXPECT_THAT(LineOf("agent"), HasSubstr("DaemonSet tessera-agent is missing"));
}

TEST_F(InstallationAuditTest, NamesObjectsThatAnotherClientChanged) {
  InstallDirectly();
  SetOwners(role_, "tessera", "");
  SetOwners(agents_, "tessera", "");
  EXPECT_EQ(LineOf("objects"), "");
  SetOwners(role_, "tessera", "rules");
  Remove(service_);
  EXPECT_THAT(LineOf("objects"), HasSubstr("missing: Service tessera-system/tessera-scheduler; "
                                           "changed: ClusterRole tessera-agent (rules, by "
                                           "kubectl-edit)\n"));
  EXPECT_THAT(LineOf("objects"), HasSubstr("fix: tessera upgrade"));
  EXPECT_THAT(Run({"doctor", "--no-headers"}).out, HasSubstr("component-broken   objects "));
}

TEST_F(InstallationAuditTest, NamesChangesOfAReleaseOfHelm) {
  InstallByHelm();
  SetOwners(role_, "helm", "rules");
  EXPECT_THAT(LineOf("objects"),
              HasSubstr("changed: ClusterRole tessera-agent (rules, by kubectl"));
  EXPECT_THAT(LineOf("objects"), HasSubstr("fix: helm upgrade -n tessera-system gpus CHART"));
}

TEST_F(InstallationAuditTest, NamesChangedObjectsOfTheOperator) {
  InstallByOperator();
  const ObjectId role{role_.api_version, "ClusterRole", "", "tessera-operator"};
  SetOwners(role, "tessera", "rules");
  EXPECT_THAT(LineOf("operator's objects"),
              HasSubstr("changed: ClusterRole tessera-operator (rules, by kubectl-edit)\n"));
  EXPECT_THAT(LineOf("operator's objects"), HasSubstr("tessera upgrade"));
  EXPECT_EQ(LineOf("objects"), "");
}

TEST_F(InstallationAuditTest, NamesTheCauseOfAPodThatIsNotReadyFromItsEvents) {
  InstallDirectly();
  const std::string ns = "/api/v1/namespaces/tessera-system/";
  const auto put = [&](const std::string& path, const std::string& yaml) {
    server_.Put(path, ParseYaml(yaml).value());
  };
  put("/api/v1/nodes/n1",
      "{metadata: {name: n1}, status: {conditions: [{type: Ready, status: 'True'}, {type: "
      "GPUReady, "
      "status: 'False', reason: NoAgent}]}}");
  put(ns + "pods/agent-a",
      "{metadata: {name: agent-a, namespace: tessera-system, labels: {app.kubernetes.io/name: "
      "tessera-agent}}, spec: {nodeName: n1}, status: {initContainerStatuses: [{name: i, state: "
      "{waiting: {reason: PodInitializing}}}]}}");
  const auto event = [&](const std::string& name, const std::string& pod, const std::string& time,
                         const std::string& message) {
    put(ns + "events/" + name,
        fmt::format("{{metadata: {{name: {0}, namespace: tessera-system}}, type: Warning, reason: "
                    "FailedMount, involvedObject: {{kind: Pod, name: {1}}}, lastTimestamp: '{2}', "
                    "message: {3}}}",
                    name, pod, time, message));
  };
  event("a", "agent-a", "2026-01-01T00:00:01Z", "earlier");
  event("b", "agent-a", "2026-01-01T00:00:09Z", "configmap not found");
  event("c", "other", "2026-01-01T00:00:10Z", "of another pod");
  EXPECT_THAT(Run({"status", "--no-headers"}).out,
              HasSubstr("n1   problem   agent-a: FailedMount: configmap not found\n"));
}

}  // namespace
}  // namespace tessera::cli
