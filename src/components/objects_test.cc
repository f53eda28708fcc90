// SPDX-License-Identifier: Apache-2.0
#include "src/components/objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include "src/components/driver_daemonset.h"
#include "src/components/schema.h"
#include "src/formats/yaml.h"

namespace tessera::components {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kEverything =
    "podMonitor: {enabled: true}\nprometheusRule: {enabled: true}\ndashboards: {enabled: true}\n"
    "pools: [{name: a, nodeSelector: {pool: a, zone: z}}, {name: b, nodeSelector: {pool: b}}]\n";

Settings SettingsOf(std::string_view yaml) {
  auto settings = ParseSettings(ParseYaml(yaml).value());
  EXPECT_TRUE(settings.ok()) << settings.status().ToString();
  return *settings;
}

Json ObjectOf(const Settings& settings, std::string_view kind, std::string_view name) {
  for (const Json& object : RenderObjects(settings)) {
    if (object.StringAt("kind").value() == kind &&
        object.Find("metadata")->StringAt("name").value() == name) {
      return object;
    }
  }
  ADD_FAILURE() << "no " << kind << " " << name;
  return Json::MakeObject();
}

void ExpectLabelsAndNames(const std::vector<Json>& objects) {
  std::set<std::string> ids;
  for (const Json& object : objects) {
    const Json& metadata = *object.Find("metadata");
    const std::string name = metadata.StringAt("name").value();
    EXPECT_EQ(metadata.Find("labels")->StringAt("app.kubernetes.io/part-of").value(), "tessera");
    EXPECT_FALSE(object.StringAt("apiVersion").value().empty());
    EXPECT_EQ(object.Find("status"), nullptr);
    EXPECT_TRUE(ids.insert(object.StringAt("kind").value() + "/" +
                           metadata.StringAt("namespace").value_or("") + "/" + name)
                    .second)
        << name;
  }
}

std::string PluralOf(std::string kind) {
  std::ranges::transform(kind, kind.begin(), [](unsigned char c) { return std::tolower(c); });
  if (kind.ends_with("policy")) return kind.substr(0, kind.size() - 1) + "ies";
  return kind + (kind.ends_with("class") ? "es" : "s");
}

bool HasText(const Json* list, std::string_view text) {
  return list != nullptr &&
         std::ranges::find(list->items(), Json::String(text)) != list->items().end();
}

// Whether a rule lets its holder list the object by its name.
bool MayList(const Json& role, const Json& object) {
  const std::string api_version = object.StringAt("apiVersion").value();
  const size_t slash = api_version.find('/');
  const std::string group = slash == std::string::npos ? "" : api_version.substr(0, slash);
  return std::ranges::any_of(role.Find("rules")->items(), [&](const Json& rule) {
    const Json* names = rule.Find("resourceNames");
    return HasText(rule.Find("apiGroups"), group) && HasText(rule.Find("verbs"), "list") &&
           HasText(rule.Find("resources"), PluralOf(object.StringAt("kind").value())) &&
           (names == nullptr || HasText(names, object.Find("metadata")->StringAt("name").value()));
  });
}

// `tessera status` compares these objects with those that exist. Secrets are for administrators.
TEST(ObjectsTest, AViewerMayListEachObjectByItsName) {
  const Settings settings = SettingsOf(
      std::string(kEverything) +
      "console: {enabled: true, behindHttps: true}\ndriver: {enabled: true, version: 550.54.15}\n");
  const Json role = ObjectOf(settings, "ClusterRole", "tessera-view");
  std::vector<Json> objects = RenderObjects(settings);
  const auto add = [&](std::vector<Json> more) {
    objects.insert(objects.end(), more.begin(), more.end());
  };
  add(RenderObjects(SettingsOf("serviceMonitor: {enabled: true}")));
  add(RenderOperator(settings));
  add({TesseraDefinition()});
  for (const Json& object : objects) {
    const std::string kind = object.StringAt("kind").value();
    if (kind == "Secret" || kind == "Namespace") continue;
    EXPECT_TRUE(MayList(role, object))
        << kind << " " << object.Find("metadata")->StringAt("name").value();
  }
}

TEST(ObjectsTest, EachObjectHasTheLabelOfTheInstallation) {
  ExpectLabelsAndNames(RenderObjects(SettingsOf(kEverything)));
  ExpectLabelsAndNames(ObjectsOfEveryKind());
  ExpectLabelsAndNames({SystemNamespace(), TesseraDefinition()});
}

// The Service for the operator's metrics must not select the pods of agents.
TEST(ObjectsTest, EachProgramWithMetricsHasAMonitorOfItsOwn) {
  const Settings pods = SettingsOf("podMonitor: {enabled: true, interval: 7s}");
  const Settings services = SettingsOf("serviceMonitor: {enabled: true, labels: {release: p}}");
  for (const std::string program :
       {"tessera-agent", "tessera-scheduler", "tessera-operator", "tessera-console"}) {
    const std::string selected =
        fmt::format(R"({{"matchLabels":{{"app.kubernetes.io/name":"{}"}}}})", program);
    const Json pod_monitor = ObjectOf(pods, "PodMonitor", program);
    EXPECT_EQ(pod_monitor.Find("spec")->Find("selector")->Serialize(), selected);
    const Json service = ObjectOf(services, "Service", program + "-metrics");
    EXPECT_EQ(service.Find("spec")->Find("selector")->StringAt("app.kubernetes.io/name").value(),
              program);
    const Json monitor = ObjectOf(services, "ServiceMonitor", program);
    EXPECT_EQ(monitor.Find("metadata")->Find("labels")->StringAt("release").value(), "p");
    const Json* labels = service.Find("metadata")->Find("labels");
    for (const auto& [key, value] :
         monitor.Find("spec")->Find("selector")->Find("matchLabels")->members()) {
      EXPECT_EQ(*labels->Find(key), value) << key;
    }
  }
}

TEST(ObjectsTest, RightsComeBeforeTheObjectsThatNeedThem) {
  const std::vector<Json> objects = RenderObjects(SettingsOf(""));
  std::vector<std::string> kinds;
  for (const Json& object : objects) kinds.push_back(object.StringAt("kind").value());
  const auto first = [&](std::string_view kind) { return std::ranges::find(kinds, kind); };
  EXPECT_LT(first("ValidatingAdmissionPolicy"), first("DaemonSet"));
  EXPECT_LT(first("ClusterRoleBinding"), first("DaemonSet"));
  EXPECT_LT(first("Secret"), first("Deployment"));
}

TEST(ObjectsTest, EqualSettingsGiveEqualObjects) {
  const Settings settings = SettingsOf(kEverything);
  EXPECT_EQ(RenderObjects(settings), RenderObjects(settings));
}

// The first matching pool decides, so that no node has two agents.
TEST(ObjectsTest, EachNodeIsInOnePool) {
  const Settings settings = SettingsOf(kEverything);
  const auto terms = [&](std::string_view name) {
    const Json set = ObjectOf(settings, "DaemonSet", name);
    const Json& pod = *set.Find("spec")->Find("template")->Find("spec");
    const Json* affinity = pod.Find("affinity");
    return pod.Find("nodeSelector")->Serialize() +
           (affinity ? affinity->Find("nodeAffinity")->Serialize() : "");
  };
  EXPECT_EQ(terms("tessera-agent-a"), R"({"kubernetes.io/os":"linux","pool":"a","zone":"z"})");
  const auto outside = [](std::string_view rules) {
    return fmt::format(
        R"({{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{}]}}}})",
        rules);
  };
  EXPECT_EQ(
      terms("tessera-agent-b"),
      R"({"kubernetes.io/os":"linux","pool":"b"})" +
          outside(R"({"matchExpressions":[{"key":"pool","operator":"NotIn","values":["a"]}]},)"
                  R"({"matchExpressions":[{"key":"zone","operator":"NotIn","values":["z"]}]})"));
  EXPECT_THAT(terms("tessera-agent"),
              HasSubstr(R"({"matchExpressions":[{"key":"zone","operator":"NotIn","values":["z"]},)"
                        R"({"key":"pool","operator":"NotIn","values":["b"]}]})"));
}

TEST(ObjectsTest, AgentsOfAPoolHaveTheNameLabelOfAllAgents) {
  const Json set = ObjectOf(SettingsOf(kEverything), "DaemonSet", "tessera-agent-a");
  const Json& labels = *set.Find("spec")->Find("template")->Find("metadata")->Find("labels");
  EXPECT_EQ(labels.StringAt("app.kubernetes.io/name").value(), "tessera-agent");
  EXPECT_EQ(labels.StringAt("tessera.dev/pool").value(), "a");
  const Json& selector = *set.Find("spec")->Find("selector")->Find("matchLabels");
  EXPECT_EQ(selector.StringAt("tessera.dev/pool").value(), "a");
}

TEST(ObjectsTest, SettingsCannotReplaceTesserasLabels) {
  const Settings settings = SettingsOf("daemonsets: {labels: {app.kubernetes.io/name: x, a: b}}");
  const Json set = ObjectOf(settings, "DaemonSet", "tessera-agent");
  const Json& labels = *set.Find("spec")->Find("template")->Find("metadata")->Find("labels");
  EXPECT_EQ(labels.StringAt("app.kubernetes.io/name").value(), "tessera-agent");
  EXPECT_EQ(labels.StringAt("a").value_or(""), "b");
}

TEST(ObjectsTest, APoolOfWholeGpusOffersNoShares) {
  const Settings settings = SettingsOf("pools: [{name: w, nodeSelector: {a: b}, mode: whole}]\n");
  EXPECT_THAT(ObjectOf(settings, "DaemonSet", "tessera-agent-w").Serialize(),
              HasSubstr("--shared-resources=none"));
  EXPECT_THAT(ObjectOf(settings, "DaemonSet", "tessera-agent").Serialize(),
              HasSubstr("--shared-resources=gpu-mem,vcuda"));
}

TEST(ObjectsTest, OnlyNodesOfPoolsWithTheRuntimeAreCleaned) {
  const Settings settings = SettingsOf(
      "daemonsets: {tolerations: [{key: a}]}\npools:\n- {name: a, nodeSelector: {p: a}}\n"
      "- {name: b, nodeSelector: {p: b}, runtime: {enabled: false},\n"
      "   agent: {extraArgs: [--binding=allocate]}}\n");
  const std::vector<Json> cleanups = RenderCleanup(settings);
  ASSERT_EQ(cleanups.size(), 2u);
  EXPECT_EQ(cleanups[0].Find("metadata")->StringAt("name").value(), "tessera-cleanup");
  EXPECT_EQ(cleanups[1].Find("metadata")->StringAt("name").value(), "tessera-cleanup-a");
  const auto pod_of = [](const Json& set) {
    return *set.Find("spec")->Find("template")->Find("spec");
  };
  const Json agent = pod_of(ObjectOf(settings, "DaemonSet", "tessera-agent-a"));
  const Json cleanup = pod_of(cleanups[1]);
  for (const auto* key : {"nodeSelector", "tolerations", "affinity"}) {
    const Json* of_cleanup = cleanup.Find(key);
    EXPECT_EQ(of_cleanup ? of_cleanup->Serialize() : "",
              agent.Find(key) ? agent.Find(key)->Serialize() : "");
  }
}

// The keys of the taints that the object's pods tolerate, separated by blanks.
std::string ToleratedBy(const Json& object) {
  std::string keys;
  const Json& pod = *object.Find("spec")->Find("template")->Find("spec");
  for (const Json& each : pod.Find("tolerations")->items()) {
    keys += each.StringAt("key").value_or("any") + " ";
  }
  return keys;
}

TEST(ObjectsTest, EachProgramHasItsTolerations) {
  const Settings settings = SettingsOf(
      "daemonsets: {tolerations: [{key: general}]}\nscheduler: {tolerations: [{key: s}]}\n"
      "console: {enabled: true, tolerations: [{key: c}]}\noperator: {tolerations: [{key: o}]}\n"
      "driver: {enabled: true, version: '550.1'}\nstartupTaint: {keys: []}\n"
      "pools:\n- {name: a, nodeSelector: {p: a}}\n"
      "- {name: b, nodeSelector: {p: b}, daemonsets: {tolerations: [{key: own}]}}\n");
  const std::string always = "nvidia.com/gpu CriticalAddonsOnly ";
  const std::vector<Json> cleanups = RenderCleanup(settings);
  ASSERT_EQ(cleanups.size(), 3u);
  const AgentSettings* agents[] = {&settings.agent, &settings.pools[0].agent,
                                   &settings.pools[1].agent};
  const char* names[] = {"tessera-agent", "tessera-agent-a", "tessera-agent-b"};
  for (size_t i = 0; i < 3; ++i) {
    const std::string wanted = always + (i == 2 ? "own " : "general ");
    EXPECT_EQ(ToleratedBy(ObjectOf(settings, "DaemonSet", names[i])), wanted);
    EXPECT_EQ(ToleratedBy(cleanups[i]), wanted);
    const auto driver =
        RenderDriverDaemonSet(agents[i]->driver.spec, {"ubuntu", "22.04", "5.15.0-113-generic"});
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    EXPECT_EQ(ToleratedBy(*driver), "any " + wanted);
  }
  EXPECT_THAT(ToleratedBy(ObjectOf(settings, "Deployment", "tessera-scheduler")), EndsWith(" s "));
  EXPECT_THAT(ToleratedBy(ObjectOf(settings, "Deployment", "tessera-console")), EndsWith(" c "));
  EXPECT_EQ(ToleratedBy(RenderOperator(settings).back()),
            "node-role.kubernetes.io/control-plane CriticalAddonsOnly o ");
}

TEST(ObjectsTest, TheDefinitionHasAStructuralSchema) {
  const std::string text = TesseraDefinition().Serialize();
  EXPECT_THAT(text, Not(HasSubstr("\"additionalProperties\":false")));
  EXPECT_THAT(text, Not(HasSubstr("$schema")));
  EXPECT_THAT(text, Not(HasSubstr("$ref")));
  EXPECT_THAT(text, Not(HasSubstr("\"type\":[")));
  EXPECT_THAT(text, HasSubstr("x-kubernetes-int-or-string"));
}

// Only Helm would check a keyword that CheckAgainstSchema does not know.
TEST(ObjectsTest, TheSchemaUsesOnlyKeywordsThatAreChecked) {
  const std::set<std::string> known = {
      "$schema", "title",     "description", "type",    "properties", "additionalProperties",
      "items",   "minLength", "maxLength",   "minimum", "maximum",    "pattern",
      "enum",    "required"};
  const std::function<void(const Json&)> check = [&](const Json& schema) {
    // The API server rejects the definition otherwise.
    EXPECT_TRUE(schema.StringAt("type").value_or("") != "array" || schema.Find("items") != nullptr)
        << schema.Serialize();
    for (const auto& [keyword, value] : schema.members()) {
      EXPECT_TRUE(known.contains(keyword)) << keyword;
      if (keyword == "properties") {
        for (const auto& [name, property] : value.members()) check(property);
      } else if (keyword == "items" || (keyword == "additionalProperties" && value.is_object())) {
        check(value);
      }
    }
  };
  check(SpecSchema());
}

TEST(ObjectsTest, TheDefaultsHaveEveryKeyOfTheirSections) {
  const Json& properties = *SpecSchema().Find("properties");
  for (const auto& [section, defaults] : DefaultSpec().members()) {
    const Json* known = properties.Find(section)->Find("properties");
    ASSERT_NE(known, nullptr) << section;
    for (const auto& [key, unused] : known->members()) {
      EXPECT_NE(defaults.Find(key), nullptr) << section << "." << key;
    }
  }
}

TEST(ObjectsTest, TheOperatorHasTheImageOfTheSettings) {
  const auto settings =
      ParseSettings(ParseYaml("image: {registry: r.test/a, tag: v2, pullSecrets: [s]}").value());
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  const std::vector<Json> objects = RenderOperator(*settings);
  EXPECT_EQ(objects.front(), SystemNamespace());
  const Json& pod = *objects.back().Find("spec")->Find("template")->Find("spec");
  EXPECT_EQ(pod.Find("containers")->items()[0].StringAt("image").value(), "r.test/a/operator:v2");
  EXPECT_EQ(pod.Find("imagePullSecrets")->Serialize(), R"([{"name":"s"}])");
}

TEST(ObjectsTest, TheOperatorHasRightsForDriversIfItInstallsThem) {
  const auto has = [](std::string_view yaml) {
    const std::vector<Json> objects =
        RenderOperator(ParseSettings(ParseYaml(yaml).value()).value());
    return std::ranges::any_of(objects, [](const Json& object) {
      return object.StringAt("kind").value() == "ClusterRole" &&
             object.Find("metadata")->StringAt("name").value() == "tessera-operator-drivers";
    });
  };
  EXPECT_FALSE(has("driver: {enabled: false}"));
  EXPECT_TRUE(has("driver: {enabled: true, version: '550.1'}"));
  EXPECT_TRUE(
      has("pools: [{name: a, nodeSelector: {b: c}, driver: {enabled: true, version: '5'}}]"));
}

}  // namespace
}  // namespace tessera::components
