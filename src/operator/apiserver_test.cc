// SPDX-License-Identifier: Apache-2.0
// Tests against a real API server, because the fake does not record which client owns which field.
// TESSERA_TEST_KUBECONFIG names the kubeconfig of a test cluster without a resource Tessera and
// without agents, because the tests clean the nodes. The tests remove what they create.
#include <gtest/gtest.h>
#include <unistd.h>

#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "api/names.h"
#include "src/components/objects.h"
#include "src/kube/config.h"
#include "src/kube/testing/real_api_server.h"
#include "src/operator/controller.h"

namespace tessera::operators {
namespace {

using std::chrono::milliseconds;

constexpr kube::ResourceType kRealTesseras{"tessera.dev", "v1alpha1", "tesseras", false};
constexpr kube::ResourceType kRoles{"rbac.authorization.k8s.io", "v1", "roles", true};

class OperatorApiServerTest : public kube::testing::RealApiServerTest {
 protected:
  void SetUp() override {
    RealApiServerTest::SetUp();
    if (!client_) return;
    events_ = std::make_unique<kube::EventRecorder>(
        *client_, kube::EventRecorder::Options{.component = "test"}, [](const Status&) {});
    name_ = fmt::format("tessera-test-{}", ::getpid());
    Start();
    ASSERT_TRUE(RunUntil([&] {
      return Apply(kRealTesseras,
                   Json::MakeObject({{"apiVersion", Json::String("tessera.dev/v1alpha1")},
                                     {"kind", Json::String("Tessera")},
                                     {"metadata", Named("tessera", "")},
                                     {"spec", Json::MakeObject()}}))
          .ok();
    }));
    ASSERT_TRUE(RunUntil([&] { return ComponentsReady(); }));
  }
  void TearDown() override {
    if (!client_) return;
    if (!controller_) Start();
    (void)Delete({kRealTesseras, "tessera", "", ""});
    EXPECT_TRUE(RunUntil([&] { return !Get({kRealTesseras, "tessera", "", ""}).ok(); }));
    (void)Delete(kube::Node(name_));
  }
  void Start() {
    const auto render = [this](const Json&) -> Result<std::vector<components::Component>> {
      return std::vector<components::Component>{{"map", {Map()}}, {"role", {Role()}}};
    };
    controller_ = std::make_unique<Controller>(
        ClusterAccess{*client_, *events_, metrics_, nullptr},
        Rendering{.render = render,
                  .definition = components::TesseraDefinition(),
                  .one_of_each_kind = {Map(), Role()}},
        ControllerOptions{
            .ns = "default", .prune_delay = milliseconds(200), .status_delay = milliseconds(50)});
  }
  static Json Named(const std::string& name, const std::string& ns) {
    Json metadata = Json::MakeObject(
        {{"name", Json::String(name)},
         {"labels", Json::MakeObject({{"app.kubernetes.io/part-of", Json::String("tessera")}})}});
    if (!ns.empty()) metadata.Set("namespace", Json::String(ns));
    return metadata;
  }
  Json Map() const {
    return Json::MakeObject({{"apiVersion", Json::String("v1")},
                             {"kind", Json::String("ConfigMap")},
                             {"metadata", Named(name_, "default")},
                             {"data", Json::MakeObject({{"k", Json::String("1")}})}});
  }
  Json Role() const {
    Json role = ParseJson(R"({"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role",
        "rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]})")
                    .value();
    role.Set("metadata", Named(name_, "default"));
    return role;
  }
  Result<Json> Get(const kube::ObjectRef& ref) {
    return Wait([&](auto f) { return client_->Get(ref, f); });
  }
  Result<Json> Delete(const kube::ObjectRef& ref) {
    return Wait([&](auto f) { return client_->Delete(ref, {}, f); });
  }
  Result<Json> Apply(const kube::ResourceType& type, const Json& object) {
    return Wait([&](auto f) { return client_->Apply(type, object, {.field_manager = "test"}, f); });
  }
  Result<Json> Patch(const kube::ObjectRef& ref, const std::string& patch,
                     const std::string& manager = "test") {
    return Wait([&](auto f) {
      return client_->Patch(ref, kube::PatchKind::kMerge, ParseJson(patch).value(),
                            {.field_manager = manager}, f);
    });
  }
  // Ignores condition Ready, which is False if a node of the cluster has a problem.
  bool ComponentsReady() {
    const auto resource = Get({kRealTesseras, "tessera", "", ""});
    const Json* status = resource.ok() ? resource->Find("status") : nullptr;
    if (status == nullptr || status->Find("components")->items().size() != 2) return false;
    for (const Json& component : status->Find("components")->items()) {
      if (component.StringAt("state").value() != "Ready") return false;
    }
    return true;
  }
  kube::ObjectRef MapRef() const { return {kube::kConfigMaps, name_, "default", ""}; }
  kube::ObjectRef RoleRef() const { return {kRoles, name_, "default", ""}; }
  std::string VersionOf(const kube::ObjectRef& ref) {
    const auto object = Get(ref);
    return object.ok() ? object->Find("metadata")->StringAt("resourceVersion").value() : "none";
  }
  // Calls `done` with pauses, because `done` sends requests.
  bool RunUntil(const std::function<bool()>& done) {
    for (int i = 0; i < 300; ++i) {
      if (done()) return true;
      runner_.RunFor(milliseconds(100));
    }
    return false;
  }

  std::unique_ptr<kube::EventRecorder> events_;
  OperatorMetrics metrics_;
  std::string name_;
  std::unique_ptr<Controller> controller_;
};

TEST_F(OperatorApiServerTest, AtRestAndAfterARestartNothingChanges) {
  // The definition of the resource may still be applied.
  ASSERT_TRUE(RunUntil([&] {
    const auto applied = metrics_.applies.values();
    runner_.RunFor(std::chrono::seconds(1));
    return metrics_.applies.values() == applied;
  }));
  // The resource Tessera is left out, because its status follows the nodes of the cluster.
  const auto versions = [&] { return std::vector{VersionOf(MapRef()), VersionOf(RoleRef())}; };
  const auto before = versions();
  const auto applies = metrics_.applies.values();
  runner_.RunFor(std::chrono::seconds(2));
  EXPECT_EQ(versions(), before);
  EXPECT_EQ(metrics_.applies.values(), applies);
  controller_.reset();
  Start();
  runner_.RunFor(std::chrono::seconds(2));
  EXPECT_EQ(versions(), before);
  EXPECT_TRUE(metrics_.repairs.values().empty());
}

TEST_F(OperatorApiServerTest, RestoresWhatOthersEditAndLeavesWhatTheyAdd) {
  ASSERT_TRUE(Patch(MapRef(), R"({"data":{"k":"2","mine":"3"}})").ok());
  EXPECT_TRUE(RunUntil([&] { return Get(MapRef())->Find("data")->StringAt("k").value() == "1"; }));
  EXPECT_EQ(Get(MapRef())->Find("data")->StringAt("mine").value(), "3");
  ASSERT_TRUE(Patch(RoleRef(), R"({"rules":[]})").ok());
  EXPECT_TRUE(RunUntil([&] {
    const auto role = Get(RoleRef());
    const Json* rules = role->Find("rules");
    return rules != nullptr && rules->is_array() && rules->items().size() == 1;
  }));
  EXPECT_EQ(metrics_.repairs.values(), (std::map<std::string, uint64_t>{{"map", 1}, {"role", 1}}));
}

TEST_F(OperatorApiServerTest, RestoresDeletedObjectsAndRemovedLabels) {
  ASSERT_TRUE(Delete(MapRef()).ok());
  EXPECT_TRUE(RunUntil([&] { return Get(MapRef()).ok(); }));
  ASSERT_TRUE(
      Patch(RoleRef(), R"({"metadata":{"labels":{"app.kubernetes.io/part-of":null}}})").ok());
  EXPECT_TRUE(
      RunUntil([&] { return Get(RoleRef())->Find("metadata")->Find("labels") != nullptr; }));
}

// The chart and the command line reject these settings, too.
TEST_F(OperatorApiServerTest, TheServerRejectsInvalidSettings) {
  const kube::ObjectRef tessera{kRealTesseras, "tessera", "", ""};
  const auto error_of = [&](const std::string& spec) {
    return Patch(tessera, fmt::format(R"({{"spec":{}}})", spec)).status();
  };
  for (const auto& [spec, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"scheduler":{"policy":"Nope"}})", "Nope"},
           {R"({"startupTaint":{"keys":["a b"]}})", "a b"},
           {R"({"agent":{"resources":{"limits":{"memory":"5Q"}}}})", "5Q"},
           {R"({"limits":{"failOpen":["A_b"]}})", "A_b"},
           {R"({"scheduler":{"clusterIP":"10.0.0"}})", "10.0.0"},
           {R"({"daemonsets":{"rollingUpdate":{"maxUnavailable":"200%"}}})", "200%"},
           {R"({"daemonsets":{"rollingUpdate":{"maxUnavailable":0}}})", "maxUnavailable"}}) {
    const Status status = error_of(spec);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << spec << ": " << status.ToString();
    EXPECT_NE(status.message().find(value), std::string::npos) << status.message();
  }
  EXPECT_EQ(error_of(R"({"agent":{"resources":{"limits":{"cpu":0.5,"memory":"1Gi"}}},
      "daemonsets":{"rollingUpdate":{"maxUnavailable":"10%"}},"mig":{"strategy":"single"},
      "startupTaint":{"keys":["example.com/a"]},"limits":{"failOpen":["*"]}})")
                .ToString(),
            "OK");
}

TEST_F(OperatorApiServerTest, RestoresTheDefinitionOfItsResource) {
  const kube::ResourceType definitions{"apiextensions.k8s.io", "v1", "customresourcedefinitions",
                                       false};
  const kube::ObjectRef ref{definitions, "tesseras.tessera.dev", "", ""};
  ASSERT_TRUE(Patch(ref, R"({"spec":{"versions":[{"name":"v1alpha1","served":true,"storage":true,
      "schema":{"openAPIV3Schema":{"type":"object"}}}]}})")
                  .ok());
  EXPECT_TRUE(RunUntil([&] {
    const auto definition = Get(ref);
    return definition->Find("spec")->Find("versions")->items()[0].Find("subresources") != nullptr;
  }));
}

TEST_F(OperatorApiServerTest, DeletingTheResourceCleansTheNodes) {
  const std::string node =
      fmt::format(R"({{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{}",)"
                  R"("labels":{{"zone":"z"}}}}}})",
                  name_);
  ASSERT_TRUE(Apply(kube::kNodes, ParseJson(node).value()).ok());
  ASSERT_TRUE(Patch(kube::Node(name_),
                    R"({"metadata":{"labels":{"nvidia.com/gpu.present":"true"},)"
                    R"("annotations":{"tessera.dev/devices":"x"}}})",
                    std::string(names::kAgent))
                  .ok());
  ASSERT_TRUE(Delete({kRealTesseras, "tessera", "", ""}).ok());
  EXPECT_TRUE(RunUntil([&] { return !Get({kRealTesseras, "tessera", "", ""}).ok(); }));
  EXPECT_FALSE(Get(MapRef()).ok());
  EXPECT_FALSE(Get(RoleRef()).ok());
  const auto after = Get(kube::Node(name_));
  EXPECT_EQ(after->Find("metadata")->Find("labels")->Serialize(), R"({"zone":"z"})");
  const Json* annotations = after->Find("metadata")->Find("annotations");
  EXPECT_TRUE(annotations == nullptr || annotations->Find("tessera.dev/devices") == nullptr);
}

}  // namespace
}  // namespace tessera::operators
