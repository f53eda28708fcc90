// SPDX-License-Identifier: Apache-2.0
#include "src/components/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

#include "src/base/strings.h"
#include "src/formats/yaml.h"
#include "src/placement/policy.h"

namespace tessera::components {
namespace {

using ::testing::HasSubstr;

Result<Settings> Parse(std::string_view yaml) { return ParseSettings(ParseYaml(yaml).value()); }

std::string ErrorOf(std::string_view yaml) { return Parse(yaml).status().message(); }

TEST(SettingsTest, DefaultsAreTheChartsValues) {
  const auto settings = Parse("");
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->image.registry, "tessera.dev");
  EXPECT_EQ(settings->scheduler.replicas, 2);
  EXPECT_EQ(settings->agent.max_unavailable, Json::String("10%"));
  EXPECT_EQ(settings->agent.exporter_interval_ms, 1000);
  EXPECT_TRUE(settings->pools.empty());
}

TEST(SettingsTest, ErrorsNameTheLineTheSettingTheValueAndTheRemedy) {
  EXPECT_EQ(ErrorOf("agent:\n  driverRoot: driver\n"),
            "line 2: agent.driverRoot: invalid value \"driver\": want an absolute path");
  EXPECT_EQ(ErrorOf("scheduler: {replicas: 0}"),
            "line 1: scheduler.replicas: invalid value 0: want a whole number from 1");
  EXPECT_EQ(
      ErrorOf("exporter: {intervalMs: 99}"),
      "line 1: exporter.intervalMs: invalid value 99: want a whole number from 100 to 3600000");
  EXPECT_EQ(ErrorOf("sharing: {memoryUnit: MB}"),
            "line 1: sharing.memoryUnit: invalid value \"MB\": want GiB or MiB");
  EXPECT_EQ(ErrorOf("limits: {enabled: 'yes'}"),
            "line 1: limits.enabled: invalid value \"yes\": want true or false");
  EXPECT_EQ(ErrorOf("limits: {replica: 1}"),
            "line 1: limits.replica: unknown setting: want one of enabled, failOpen, stopBypass");
  EXPECT_EQ(ErrorOf("image: {pullSecrets: [a, 5]}"),
            "line 1: image.pullSecrets[1]: invalid value 5: want the name of an object: lower-case "
            "letters, digits, - and "
            "., at most 253");
  EXPECT_EQ(ErrorOf("[1]"), "line 1: settings: invalid value [1]: want an object");
  EXPECT_THAT(ErrorOf("daemonsets: {labels: {a: true}}"), HasSubstr("daemonsets.labels.a"));
}

TEST(SettingsTest, RejectsTextsWithNulCharactersAndTooLongTexts) {
  Json spec = Json::MakeObject();
  Json agent = Json::MakeObject();
  agent.Set("driverRoot", Json::String(std::string_view("/a\0b", 4)));
  spec.Set("agent", agent);
  EXPECT_THAT(ParseSettings(spec).status().message(), HasSubstr("agent.driverRoot"));
  spec.Find("agent")->Set("driverRoot", Json::String("/" + std::string(1 << 20, 'a')));
  EXPECT_THAT(ParseSettings(spec).status().message(), HasSubstr("agent.driverRoot"));
}

TEST(SettingsTest, ANullStandsForTheDefault) {
  const auto settings = Parse("scheduler: {policy: null}\nagent: null\nimage: {pullSecrets: ~}\n");
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->scheduler.policy, placement::kDefaultPolicy);
  EXPECT_EQ(settings->agent.driver_root, "/");
}

TEST(SettingsTest, ANullRemovesADefaultLimit) {
  const auto settings = Parse("scheduler: {resources: {limits: null}}");
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->scheduler.resources.Find("limits"), nullptr);
  EXPECT_NE(settings->scheduler.resources.Find("requests"), nullptr);
}

TEST(SettingsTest, ValuesOfNvidiasChartMeanTheSame) {
  const auto settings = Parse(
      "hostPaths: {driverInstallDir: /run/nvidia/driver}\noperator: {runtimeClass: gpu}\n"
      "dcgmExporter: {enabled: false, serviceMonitor: {enabled: true, interval: 30s,\n"
      "  additionalLabels: {release: p}}}\nimagePullSecrets: [a]\n");
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->agent.driver_root, "/run/nvidia/driver");
  EXPECT_EQ(settings->runtime_class, "gpu");
  EXPECT_FALSE(settings->agent.exporter_enabled);
  EXPECT_TRUE(settings->monitoring.service_monitor.enabled);
  EXPECT_EQ(settings->monitoring.service_monitor.interval, "30s");
  EXPECT_EQ(settings->monitoring.service_monitor.labels, (StringMap{{"release", "p"}}));
  EXPECT_THAT(settings->image.pull_secrets, ::testing::ElementsAre("a"));
}

TEST(SettingsTest, TheErrorForAValueOfNvidiasChartNamesTheRemedy) {
  EXPECT_THAT(ErrorOf("gds: {enabled: true}"), HasSubstr("set driver.gds.enabled instead"));
  EXPECT_THAT(ErrorOf("gfd: {enabled: false}"), HasSubstr("part of tessera-agent"));
  EXPECT_THAT(ErrorOf("migManager: {enabled: true}"), HasSubstr("with nvidia-smi mig"));
  EXPECT_THAT(ErrorOf("gpuCluster: {deployCR: true}"), HasSubstr("Dynamic Resource Allocation"));
  EXPECT_THAT(ErrorOf("extraObjects: [{kind: Secret}]"), HasSubstr("apply the objects yourself"));
  EXPECT_EQ(ErrorOf("clusterPolicy: {deployCR: true}\ngpuCluster: {deployCR: false}\n"
                    "draDriver: {gpus: {}}\nextraObjects: []"),
            "");
  EXPECT_THAT(ErrorOf("devicePlugin: {config: {name: slices}}"), HasSubstr("aliyun.com/gpu-mem"));
  EXPECT_THAT(ErrorOf("driver: {licensingConfig: {secretName: a}}"),
              HasSubstr("driver.licensingConfig.secretName=\"a\": vGPUs"));
  EXPECT_EQ(ErrorOf("migManager: {enabled: false}\ndevicePlugin: {config: {name: ''}}"), "");
}

TEST(SettingsTest, OneErrorNamesAllRejectedValuesOfNvidiasChart) {
  const std::string error =
      ErrorOf("gds: {enabled: true}\nmigManager: {enabled: true}\ngfd: {enabled: false}");
  EXPECT_THAT(error, HasSubstr("3 values cannot be used: (1) gds.enabled=true: it is a part of"));
  EXPECT_THAT(error, HasSubstr("; (2) migManager.enabled=true: MIG is configured"));
  EXPECT_THAT(error, HasSubstr("; (3) gfd.enabled=false: it is a part of tessera-agent"));
}

TEST(SettingsTest, ListsTheValuesOfNvidiasChartWithoutEffect) {
  const auto ignored = [](std::string_view yaml) {
    EXPECT_EQ(ErrorOf(yaml), "");
    return IgnoredValues(ParseYaml(yaml).value());
  };
  EXPECT_THAT(
      ignored("mig: {strategy: single}\nnode-feature-discovery: {enabled: true}\n"
              "operator: {runtimeClass: gpu, image: a}\ntoolkit: {enabled: true, version: ''}\n"
              "driver: {startupProbe: {periodSeconds: 1}}\ndcgm: {enabled: false, image: a}\n"),
      ::testing::ElementsAre(
          "driver.startupProbe: the agent checks the driver",
          "mig: MIG devices are offered as they are on the node, as with strategy mixed",
          "node-feature-discovery: the agent finds GPUs and writes the labels without Node Feature "
          "Discovery",
          "operator: only runtimeClass, tolerations have an effect"));
  EXPECT_THAT(ignored("scheduler: {replicas: 3}"), ::testing::IsEmpty());
}

TEST(SettingsTest, RejectsValuesThatTheApiServerWouldReject) {
  for (const auto& [yaml, want] : std::initializer_list<std::pair<const char*, const char*>>{
           {"scheduler: {policy: Nope}", "\"Nope\": want Tessera, BestFit, FGD"},
           {"startupTaint: {keys: [a b]}", "\"a b\": want the key of a taint"},
           {"startupTaint: {keys: [a/b/c]}", "\"a/b/c\": want the key of a taint"},
           {"agent: {resources: {limits: {memory: 5Q}}}", "\"5Q\": want a quantity such as 100m"},
           {"console: {resources: {requests: {cpu: -0.5}}}", "-0.5: want a quantity"},
           {"agent: {resources: {limit: {memory: 1Gi}}}", "want one of requests, limits, claims"},
           {"limits: {failOpen: [A_b]}", "\"A_b\": want the name of a namespace, or * for all"},
           {"scheduler: {clusterIP: 10.0.0}", "\"10.0.0\": want an address"},
           {"image: {tag: 'a b'}", "\"a b\": want the tag of an image"},
           {"image: {tag: .a}", "\".a\": want the tag of an image"},
           {"image: {registry: 'https://a'}", "\"https://a\": want a registry without a scheme"},
           {"image: {registry: a/}", "\"a/\": want a registry without a scheme"},
           {"image: {registry: a/B}", "\"a/B\": want a registry without a scheme"},
           {"runtime: {runtimeClass: NVIDIA}", "\"NVIDIA\": want the name of an object"},
           {"operator: {runtimeClass: a_b}", "\"a_b\": want the name of an object"},
           {"agent: {extraArgs: [-v]}", "\"-v\": want a flag that tessera-agent --help lists"},
           {"agent: {extraArgs: ['--log-format json']}", "in one text: --name or --name=value"},
           {"scheduler: {extraArgs: [--polcy=FGD]}", "want a flag that tessera-scheduler --help"},
           {"console: {extraArgs: [--version]}", "want a flag that tessera-console --help"},
           {"daemonsets: {rollingUpdate: {maxUnavailable: 200%}}",
            "\"200%\": want a number from 1, or a percentage from 1% to 100%"},
           {"daemonsets: {rollingUpdate: {maxUnavailable: 0}}", "invalid value 0"}}) {
    EXPECT_THAT(ErrorOf(yaml), HasSubstr(want)) << yaml;
  }
  EXPECT_EQ(ErrorOf("startupTaint: {keys: [a, example.com/b_c.d]}\nlimits: {failOpen: ['*', a-1]}\n"
                    "agent: {resources: {limits: {cpu: 0.5, memory: 1.5e3}, requests: {cpu: 2}}}\n"
                    "scheduler: {clusterIP: 'fd00::a', extraArgs: [--leader-elect, --hold=5,\n"
                    "  '--gpu-pool-label=']}\n"
                    "runtime: {runtimeClass: gpu.v1}\n"
                    "image: {registry: 'registry.example.com:5000/gpu/a__b-c', tag: 1.2_RC-3}"),
            "");
  for (const char* registry : {"localhost:5000", "'[fd00::1]:5000/a'", "docker.io/library"}) {
    EXPECT_EQ(ErrorOf(fmt::format("image: {{registry: {}}}", registry)), "");
  }
  EXPECT_NE(ErrorOf(fmt::format("image: {{tag: {}}}", std::string(129, 'a'))), "");
  EXPECT_NE(ErrorOf(fmt::format("runtime: {{runtimeClass: {}}}", std::string(254, 'a'))), "");
}

TEST(SettingsTest, ThePoliciesAreThoseOfTheScheduler) {
  for (const placement::PolicyInfo& info : placement::Policies()) {
    EXPECT_EQ(ErrorOf(fmt::format("scheduler: {{policy: {}}}", info.name)), "");
  }
  EXPECT_EQ(ErrorOf("scheduler: {policy: Tessera-memo}"), "");
  // Each name that the description of the setting lists is known.
  std::string names = ErrorOf("scheduler: {policy: Nope}");
  names = names.substr(names.find(": want ") + 7);
  names.replace(names.find(" or "), 4, ", ");
  for (const std::string_view name : SplitList(names)) {
    EXPECT_TRUE(placement::FindPolicy(name).ok()) << name;
  }
}

TEST(SettingsTest, ACountMayBeATextAsInNvidiasChart) {
  const auto settings = Parse("daemonsets: {rollingUpdate: {maxUnavailable: '1'}}");
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->agent.max_unavailable, Json::Int(1));
}

TEST(SettingsTest, RejectsTolerationsThatTheApiServerWouldReject) {
  for (const std::string section : {"daemonsets", "scheduler", "console", "operator"}) {
    const auto error = [&](const std::string& toleration) {
      return ErrorOf(fmt::format("{}: {{tolerations: [{{key: a}}, {{{}}}]}}", section, toleration));
    };
    EXPECT_THAT(error("effect: NoScheduling"),
                HasSubstr(section + ".tolerations[1].effect: invalid value \"NoScheduling\": want "
                                    "NoSchedule or PreferNoSchedule or NoExecute"));
    EXPECT_THAT(error("keys: a"), HasSubstr(section + ".tolerations[1].keys: unknown setting"));
    EXPECT_THAT(error("value: true"), HasSubstr("quote true, false and numbers"));
  }
}

TEST(SettingsTest, RejectsSettingsThatTesseraCannotFollow) {
  EXPECT_THAT(ErrorOf("driver: {enabled: true}"), HasSubstr("driver.version"));
  EXPECT_THAT(ErrorOf("pools: [{name: a, nodeSelector: {a: b}, driver: {enabled: true}}]"),
              HasSubstr("pools[0]: driver.version"));
  EXPECT_THAT(ErrorOf("runtime: {enabled: false}"), HasSubstr("--binding=allocate"));
  EXPECT_THAT(ErrorOf("scheduler: {enabled: false}"), HasSubstr("webhook.enabled=false"));
  EXPECT_THAT(ErrorOf("toolkit: {enabled: 'false'}"), HasSubstr("want true or false"));
  EXPECT_THAT(ErrorOf("operator: {tolerations: {key: a}}"),
              HasSubstr("operator.tolerations: invalid value {\"key\":\"a\"}: want a list"));
  EXPECT_THAT(ErrorOf("podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}"),
              HasSubstr("enable one of them"));
}

TEST(SettingsTest, ConsoleSettingsThatBelongTogetherMustBeGivenTogether) {
  const auto error = [](const std::string& console) {
    return ErrorOf("console: {enabled: true, " + console + "}");
  };
  const std::string issuer = "issuerUrl: 'https://l'", client = "clientId: c";
  const std::string redirect = "redirectUrl: 'https://c/oidc/callback'";
  EXPECT_EQ(error("oidc: {" + issuer + ", " + client + ", " + redirect + "}"), "");
  EXPECT_EQ(error("oidc: {" + issuer + ", " + redirect + "}"),
            "console.oidc.issuerUrl: it needs console.oidc.clientId: set both, or neither");
  EXPECT_THAT(error("oidc: {" + issuer + ", " + client + "}"),
              HasSubstr("needs console.oidc.redirectUrl"));
  for (const std::string& alone : {client, redirect, std::string("clientSecret: s")}) {
    EXPECT_THAT(error("oidc: {" + alone + "}"), HasSubstr("needs console.oidc.issuerUrl"));
  }
  EXPECT_EQ(error("oidc: {" + issuer + ", " + client +
                  "}, extraArgs: ['--oidc-redirect-url=https://c/oidc/callback']"),
            "");
  EXPECT_THAT(error("prometheus: {tokenSecret: t}"), HasSubstr("needs console.prometheusUrl"));
  EXPECT_THAT(error("prometheusUrl: 'https://p', prometheus: {tokenSecret: t, basicAuthSecret: b}"),
              HasSubstr("exclude each other"));
  EXPECT_EQ(ErrorOf("console: {oidc: {clientId: c}}"), "") << "no console";
}

TEST(SettingsTest, APoolOverridesTheGeneralSettings) {
  const auto settings = Parse(
      "agent: {driverRoot: /opt, extraArgs: [--supervise]}\nlimits: {failOpen: [x]}\n"
      "pools:\n- name: a\n  nodeSelector: {pool: a}\n  agent: {extraArgs: [--no-hostname]}\n"
      "- name: b\n  nodeSelector: {pool: b}\n  mode: whole\n");
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  ASSERT_EQ(settings->pools.size(), 2u);
  const AgentSettings& a = settings->pools[0].agent;
  EXPECT_EQ(a.driver_root, "/opt");
  EXPECT_THAT(a.extra_args, ::testing::ElementsAre("--no-hostname"));
  EXPECT_THAT(a.limits_fail_open_namespaces, ::testing::ElementsAre("x"));
  EXPECT_TRUE(a.offers_gpu_mem);
  EXPECT_FALSE(settings->pools[1].agent.offers_gpu_mem || settings->pools[1].agent.offers_vcuda);
}

TEST(SettingsTest, RejectsInvalidPools) {
  EXPECT_THAT(ErrorOf("pools: [{nodeSelector: {a: b}}]"), HasSubstr("name is missing"));
  EXPECT_THAT(ErrorOf("pools: [{name: A, nodeSelector: {a: b}}]"), HasSubstr("lower-case"));
  EXPECT_THAT(ErrorOf("pools: [{name: a, nodeSelector: {}}]"), HasSubstr("no label"));
  EXPECT_THAT(ErrorOf("pools: [{name: a, nodeSelector: {a: b}, mode: half}]"),
              HasSubstr("want whole or shared"));
  EXPECT_THAT(ErrorOf("pools: [{name: a, nodeSelector: {a: b}, runtime: {runtimeClass: x}}]"),
              HasSubstr("unknown setting"));
  EXPECT_THAT(ErrorOf("pools: [{name: a, nodeSelector: {a: b}}, {name: a, nodeSelector: {a: c}}]"),
              HasSubstr("pools[1].name: \"a\" occurs twice"));
  EXPECT_THAT(ErrorOf("pools: [{name: a, nodeSelector: {a: b}, mode: shared,\n"
                      "  sharing: {gpuMem: false, vcuda: false}}]"),
              HasSubstr("enable one"));
}

TEST(SettingsTest, RejectsMorePoolsThanANodeAffinityCanExclude) {
  std::string yaml = "pools:\n";
  for (int i = 0; i < 9; ++i)
    yaml += fmt::format("- {{name: p{0}, nodeSelector: {{a: '{0}', b: c}}}}\n", i);
  EXPECT_THAT(ErrorOf(yaml), HasSubstr("pools[8].nodeSelector: too many labels"));
}

TEST(SettingsTest, MergesAsHelmDoes) {
  const Json merged = MergeSpec(ParseYaml("a: {b: 1, c: 2}\nd: [1, 2]\ne: 5\n").value(),
                                ParseYaml("a: {b: 3, c: null}\nd: [4]\nf: {g: 6}\n").value());
  EXPECT_EQ(merged.Serialize(), R"({"a":{"b":3},"d":[4],"e":5,"f":{"g":6}})");
}

}  // namespace
}  // namespace tessera::components
