// SPDX-License-Identifier: Apache-2.0
// Compares the rendered objects with those that the real helm renders from the chart. Skipped on
// machines where helm is not built.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/base/subprocess.h"
#include "src/components/objects.h"
#include "src/components/settings.h"
#include "src/formats/base64.h"
#include "src/formats/yaml.h"

namespace tessera::components {
namespace {

namespace fs = std::filesystem;

// The path of the helm that `testcluster build helm` has put into the cache; "" if there is none.
std::string FindHelm() {
  const char* cache = std::getenv("TESSERA_CACHE");
  const char* home = std::getenv("HOME");
  const std::string root =
      cache != nullptr ? cache : JoinPath(home != nullptr ? home : "/root", ".cache/tessera");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root, ignored)) {
    const fs::path helm = entry.path() / "helm";
    const bool is_helm = entry.path().filename().string().starts_with("helm-");
    if (is_helm && fs::exists(helm, ignored)) return helm;
  }
  return "";
}

// The value with sorted members, so that equal objects have equal texts.
Json Sorted(const Json& json) {
  Json out = json;
  if (json.is_array()) {
    for (Json& item : out.items()) item = Sorted(item);
  } else if (json.is_object()) {
    for (auto& [name, value] : out.members()) value = Sorted(value);
    std::ranges::sort(out.members(), {}, [](const Json::Member& member) { return member.first; });
  }
  return out;
}

std::string IdOf(const Json& object) {
  const Json& metadata = *object.Find("metadata");
  return fmt::format("{} {}/{}", object.StringAt("kind").value(),
                     metadata.StringAt("namespace").value_or(""),
                     metadata.StringAt("name").value());
}

using ObjectTexts = std::map<std::string, std::string>;

void AddObject(const Json& object, ObjectTexts* texts) {
  EXPECT_TRUE(texts->emplace(IdOf(object), Sorted(object).Pretty()).second) << IdOf(object);
}

ObjectTexts ParseManifest(const std::string& text) {
  ObjectTexts objects;
  size_t at = 0;
  while (at != std::string::npos) {
    const size_t next = text.find("\n---\n", at);
    const std::string document = text.substr(at, next == std::string::npos ? next : next + 1 - at);
    const auto object = ParseYaml(document.starts_with("---\n") ? document.substr(4) : document);
    EXPECT_TRUE(object.ok()) << object.status().ToString() << "\n" << document;
    if (object.ok() && object->is_object()) AddObject(*object, &objects);
    at = next == std::string::npos ? next : next + 1;
  }
  return objects;
}

class ChartTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    helm_ = FindHelm();
    if (helm_.empty()) GTEST_SKIP() << "helm is not built: testcluster build helm";
    char name[] = "/tmp/chart_test-XXXXXX";
    values_ = name;
    const int fd = ::mkstemp(values_.data());
    ASSERT_GE(fd, 0);
    const std::string text = GetParam();
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fd);
  }
  void TearDown() override {
    if (!values_.empty()) ::unlink(values_.c_str());
  }
  Result<SubprocessResult> Template() const {
    return RunProgram(
        {helm_, "template", "tessera", std::string(TESSERA_SOURCE_DIR) + "/deploy/chart",
         "--namespace=tessera-system", "--kube-version=1.36", "-f", values_},
        std::chrono::seconds(50));
  }

  std::string helm_;
  std::string values_;
};

class SameAsTheChart : public ChartTest {};

TEST_P(SameAsTheChart, RendersWhatHelmRenders) {
  const auto helm = Template();
  ASSERT_TRUE(helm.ok()) << helm.status().ToString();
  ASSERT_EQ(helm->exit_code, 0) << helm->err;
  const ObjectTexts wanted = ParseManifest(helm->out);
  const auto settings = ParseSettings(ParseYaml(GetParam()).value());
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  ObjectTexts rendered;
  for (const Json& object : RenderObjects(*settings)) AddObject(object, &rendered);
  EXPECT_GT(wanted.size(), 10u);
  for (const auto& [id, text] : wanted) EXPECT_EQ(rendered[id], text) << id;
  EXPECT_EQ(rendered.size(), wanted.size());
}

INSTANTIATE_TEST_SUITE_P(
    Values, SameAsTheChart,
    ::testing::Values(
        "",
        "agent: {driverRoot: /run/nvidia/driver/, driverRootWritable: true}\n"
        "runtime: {onlyWithGpu: false, spreadSeconds: 0}\n",
        "image: {registry: 'registry.test:5000/a', tag: v1, pullPolicy: Always, pullSecrets: [a, "
        "b]}\n"
        "imagePullSecrets: [c]\n",
        "daemonsets:\n"
        "  labels: {team: gpu}\n"
        "  annotations: {note: 'a: \"b\"'}\n"
        "  tolerations: [{key: a, operator: Equal, value: b, effect: NoSchedule}]\n"
        "  nodeSelector: {pool: gpu}\n"
        "  priorityClassName: low\n"
        "  rollingUpdate: {maxUnavailable: 3}\n",
        "daemonsets: {updateStrategy: OnDelete}\n"
        "agent: {createDeviceNodes: false, devRoot: /host, resources: {limits: {memory: 1Gi, cpu: "
        "2}},\n"
        "  extraArgs: [--log-format=json, --no-hostname], env: [{name: A, value: b}, {name: C}]}\n",
        "toolkit: {enabled: false}\nagent: {extraArgs: [--binding=allocate]}\n",
        "runtime: {repair: true, runtimeClass: gpu, resources: {requests: {cpu: 1}}}\n"
        "sharing: {vcuda: false, memoryUnit: MiB}\n",
        "sharing: {vcuda: false, gpuMem: false}\nlimits: {enabled: false}\n"
        "operator: {runtimeClass: theirs}\nhostPaths: {driverInstallDir: /run/nvidia/driver}\n",
        "limits: {failOpen: [a, b], stopBypass: [c]}\n"
        "exporter: {intervalMs: 5000, configMap: mine}\n",
        "image: {pullSecrets: null}\n"
        "dcgmExporter: {enabled: false, config: {name: theirs}}\n",
        "podMonitor: {enabled: true, interval: 30s, labels: {release: prometheus}}\n",
        "serviceMonitor: {enabled: true, interval: 30s, labels: {release: prometheus}}\n",
        "dcgmExporter: {config: {name: theirs}, serviceMonitor: {enabled: true}}\n"
        "serviceMonitor: {interval: 30s, labels: {release: prometheus}}\n",
        "prometheusRule: {enabled: true, labels: {a: b}}\n"
        "dashboards: {enabled: true, labels: {grafana_dashboard: '2', folder: GPUs}}\n",
        "scheduler: {replicas: 3, policy: BestFit, clusterIP: 10.0.0.50, extraArgs: "
        "[--log-format=json],\n"
        "  nodeSelector: {a: b}, tolerations: [{key: x, operator: Exists}], resources: {limits: "
        "null}}\n"
        "assignments: {writers: ['system:serviceaccount:old:ext', u2]}\n",
        "webhook: {enabled: false}\nscheduler: {enabled: false}\n"
        "privilegedPolicy: {enabled: false}\ngpuManagerMetric: {enabled: false}\n",
        "console: {enabled: true, resources: {limits: {memory: 2Gi}}}\n",
        "console: {enabled: true, behindHttps: true, nodeSelector: {a: b}, tolerations: [{key: x, "
        "operator: Exists}],\n"
        "  otherTenants: sums, prometheusUrl: 'http://prometheus.monitoring:9090',\n"
        "  extraArgs: [--usage-label=team]}\nimage: {pullSecrets: [a]}\n",
        "console: {enabled: true, tlsSecret: cert}\nnetworkPolicy: {enabled: false}\n",
        "console: {enabled: true, tlsSecret: cert, oidc: {issuerUrl: 'https://login.example',\n"
        "  clientId: tessera, clientSecret: client, caConfigMap: ca, scopes: openid email,\n"
        "  redirectUrl: 'https://console.example/oidc/callback'}}\n",
        "console: {enabled: true, prometheusUrl: 'https://prometheus.monitoring',\n"
        "  prometheus: {caConfigMap: ca, basicAuthSecret: user}}\n",
        "console: {enabled: true, prometheusUrl: 'https://prometheus.monitoring',\n"
        "  prometheus: {tokenSecret: reader}}\n",
        "console: {enabled: true, oidc: {issuerUrl: 'https://login.example', clientId: tessera,\n"
        "  caConfigMap: ca, redirectUrl: 'http://127.0.0.1:8090/oidc/callback'}}\n",
        "dcgmExporter: {serviceMonitor: {enabled: true, interval: 1m, additionalLabels: {a: b}}}\n",
        "daemonsets: {rollingUpdate: {maxUnavailable: '1'}}\nmig: {strategy: single}\n"
        "node-feature-discovery: {enabled: true}\nplatform: {openshift: false}\n",
        "startupTaint: {keys: []}\n"
        "webhook: {enabled: false}\nnetworkPolicy: {enabled: false}\n"
        "driver: {enabled: false}\ngfd: {enabled: true}\nnfd: {enabled: true}\nglobal: {a: b}\n"));

// NOTES.txt prints the lines of the template "tessera.ignored". The test adds a template that
// prints them as YAML.
class IgnoredByBoth : public ChartTest {};

TEST_P(IgnoredByBoth, TheChartNamesTheSameValues) {
  const TempDir copy;
  const std::string chart = JoinPath(copy.path(), "chart");
  fs::copy(std::string(TESSERA_SOURCE_DIR) + "/deploy/chart", chart, fs::copy_options::recursive);
  ASSERT_TRUE(WriteFileAtomically(JoinPath(chart, "templates/ignored.yaml"),
                                  "kind: Lines\nlines:\n"
                                  "{{- range include \"tessera.ignored\" . | splitList \"\\n\" }}\n"
                                  "  - {{ quote . }}\n{{- end }}\n",
                                  0644)
                  .ok());
  const auto helm =
      RunProgram({helm_, "template", "tessera", chart, "--namespace=tessera-system",
                  "--kube-version=1.36", "-f", values_, "--show-only=templates/ignored.yaml"},
                 std::chrono::seconds(50));
  ASSERT_TRUE(helm.ok()) << helm.status().ToString();
  ASSERT_EQ(helm->exit_code, 0) << helm->err;
  std::set<std::string> lines_of_the_chart;
  const Json document = ParseYaml(helm->out.substr(helm->out.find('\n') + 1)).value();
  for (const Json& line : document.Find("lines")->items()) {
    if (!line.string_value().empty()) lines_of_the_chart.insert(line.string_value());
  }
  const std::vector<std::string> ignored = IgnoredValues(ParseYaml(GetParam()).value());
  EXPECT_EQ(lines_of_the_chart, std::set<std::string>(ignored.begin(), ignored.end()));
  EXPECT_GT(ignored.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Values, IgnoredByBoth,
    ::testing::Values("mig: {strategy: mixed}\nnode-feature-discovery: {worker: {a: b}}\n"
                      "operator: {runtimeClass: gpu, version: v1}\ntoolkit: {enabled: true}\n"
                      "hostPaths: {rootFS: /}\nvalidator: {plugin: {env: []}, image: a}\n"
                      "dcgm: {enabled: false, image: a}\nvfioManager: {enabled: true}\n"
                      "driver: {startupProbe: {periodSeconds: 1}, manager: {env: []}}\n"));

TEST(Chart, LintFindsNothing) {
  const std::string helm = FindHelm();
  if (helm.empty()) GTEST_SKIP() << "helm is not built: testcluster build helm";
  const auto result =
      RunProgram({helm, "lint", "--strict", std::string(TESSERA_SOURCE_DIR) + "/deploy/chart",
                  "--namespace=tessera-system"},
                 std::chrono::seconds(50));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->exit_code, 0) << result->out;
  EXPECT_EQ(result->out.find('['), std::string::npos) << result->out;
}

TEST(Chart, TheIconIsThatOfTheConsole) {
  const std::string root = TESSERA_SOURCE_DIR;
  const Json chart = ParseYaml(ReadFile(root + "/deploy/chart/Chart.yaml").value()).value();
  EXPECT_EQ(
      chart.StringAt("icon").value(),
      "data:image/svg+xml;base64," + Base64Encode(ReadFile(root + "/web/src/icon.svg").value()));
}

class RejectedByTheChart : public ChartTest {};

TEST_P(RejectedByTheChart, OneErrorNamesEachValue) {
  const auto helm = Template();
  ASSERT_TRUE(helm.ok()) << helm.status().ToString();
  EXPECT_NE(helm->exit_code, 0);
  // A comment behind each value has the text that the error must contain for this value.
  for (const std::string_view line : Split(std::string_view(GetParam()), '\n')) {
    const size_t wanted = line.find("# ");
    if (wanted == std::string_view::npos) continue;
    EXPECT_NE(helm->err.find(line.substr(wanted + 2)), std::string::npos) << line << helm->err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Values, RejectedByTheChart,
    ::testing::Values(
        "migManager: {enabled: true}  # migManager.enabled=true: MIG is configured\n"
        "gds: {enabled: true}         # gds.enabled=true: it is a part of the driver\n"
        "gfd: {enabled: false}        # gfd.enabled=false: it is a part of tessera-\n"
        "driver: {enabled: true}      # driver.enabled=true: only tessera-operator\n",
        "image: null                  # image=null: the chart needs this section\n"
        "console: null                # console=null: the chart needs this section\n"
        "daemonsets:                  # 3 values cannot be used\n"
        "  rollingUpdate: null        # daemonsets.rollingUpdate=null: the chart\n",
        "image: {tag: null}           # at '/image': missing property 'tag'\n"
        "podMonitor: {interval: null} # at '/podMonitor': missing property\n"));

// Checks that the schema's `required` and the template "tessera.sections" name all values that a
// null must not remove.
class ValuesThatTheChartNeeds : public ::testing::Test {
 protected:
  ValuesThatTheChartNeeds() {
    schema_ = ParseJson(ReadFile(chart_ + "values.schema.json").value()).value();
    CheckSection(*schema_.Find("properties"), DefaultSpec(), "");
  }
  void CheckSection(const Json& properties, const Json& defaults, const std::string& path) {
    for (const auto& [name, value] : defaults.members()) {
      const Json* schema = properties.Find(name);
      if (const auto reference = schema->StringAt("$ref"); reference.ok()) {
        schema = schema_.Find("definitions")->Find(BaseName(*reference));
      }
      if (!value.is_object() || schema->Find("properties") == nullptr || name == "resources") {
        continue;
      }
      sections_.insert(path + name);
      std::set<std::string> wanted, required;
      for (const auto& [key, member] : value.members()) {
        const bool is_scalar = !member.is_object() && !member.is_array();
        if (is_scalar && !IsEmpty(member) && member != Json::Bool(false)) wanted.insert(key);
      }
      if (const Json* names = schema->Find("required")) {
        for (const Json& key : names->items()) required.insert(key.string_value());
      }
      EXPECT_EQ(required, wanted) << "values.schema.json: required of " << path << name;
      CheckSection(*schema->Find("properties"), value, path + name + ".");
    }
  }
  static bool IsEmpty(const Json& value) {
    return value.is_null() || (value.is_string() && value.string_value().empty());
  }

  const std::string chart_ = std::string(TESSERA_SOURCE_DIR) + "/deploy/chart/";
  Json schema_;
  std::set<std::string> sections_;
};

TEST_F(ValuesThatTheChartNeeds, AreCheckedBeforeATemplateReadsThem) {
  const std::string values = ReadFile(chart_ + "templates/_values.tpl").value();
  const size_t begin = values.find('\n', values.find("{{- define \"tessera.sections\" -}}")) + 1;
  std::string text = values.substr(begin, values.find("{{- end -}}", begin) - begin);
  std::ranges::replace(text, '\n', ' ');
  std::set<std::string> listed;
  for (const std::string_view name : Split(text, ' ')) {
    if (!name.empty()) listed.emplace(name);
  }
  EXPECT_EQ(listed, sections_);
  for (const auto& entry : fs::directory_iterator(chart_ + "templates")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string file = ReadFile(entry.path()).value();
    const size_t first = file.find("{{");
    if (file.find(".Values") == std::string::npos) continue;
    EXPECT_EQ(file.find("{{- include \"tessera.check\" . }}"), first) << entry.path();
  }
}

// Each list of flags in the schema is that of the program in docs/reference/programs.md, which
// scripts/reference writes. A flag that ends the program is not for a pod.
TEST(FlagsOfPrograms, AreThoseThatTheSchemaAllows) {
  const std::string root(TESSERA_SOURCE_DIR);
  const std::string page = ReadFile(root + "/docs/reference/programs.md").value();
  const Json schema =
      ParseJson(ReadFile(root + "/deploy/chart/values.schema.json").value()).value();
  for (const std::string program : {"agent", "scheduler", "console"}) {
    const size_t begin = page.find(fmt::format("\n## tessera-{}\n", program)) + 1;
    const std::string section = page.substr(begin, page.find("\n## ", begin) - begin);
    std::string pattern;
    for (const std::string_view line : Split(section, '\n')) {
      if (!line.starts_with("  -")) continue;
      const std::string_view names = line.substr(2, line.find_first_of(" {", 2) - 2);
      for (const std::string_view name : Split(names, ',')) {
        if (!name.starts_with("--") || name == "--help" || name == "--version") continue;
        pattern += fmt::format("{}{}", pattern.empty() ? "" : "|", name.substr(2));
      }
    }
    const Json* definition = schema.Find("definitions")->Find(program + "Flags");
    EXPECT_EQ(definition->Find("items")->StringAt("pattern").value(),
              fmt::format("^--({})(=.*)?$", pattern));
  }
}

class RejectedByBoth : public ChartTest {};

TEST_P(RejectedByBoth, IsRejectedByTheChartAndByTheSettings) {
  const auto helm = Template();
  ASSERT_TRUE(helm.ok()) << helm.status().ToString();
  EXPECT_NE(helm->exit_code, 0);
  EXPECT_FALSE(ParseSettings(ParseYaml(GetParam()).value()).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Values, RejectedByBoth,
    ::testing::Values(
        "scheduler: {replica: 1}\n", "scheduler: {replicas: 0}\n", "agent: {driverRoot: driver}\n",
        "sharing: {memoryUnit: MB}\n", "agent: {extraArgs: [verbose]}\n", "image: {tag: 'a b'}\n",
        "image: {tag: -1}\n", "image: {registry: 'https://a'}\n", "image: {registry: 'a/'}\n",
        "runtime: {runtimeClass: NVIDIA}\n", "image: {pullSecrets: [a_b]}\n",
        "scheduler: {extraArgs: ['--policy Random']}\n", "console: {extraArgs: [--]}\n",
        "agent: {extraArgs: [--verbose]}\n", "console: {enabled: yes please}\n",
        "console: {otherTenants: all}\n", "console: {prometheusUrl: prometheus}\n",
        "console: {prometheus: {token: secret}}\n",
        "console: {oidc: {issuerUrl: 'http://login'}}\n", "driver: {enabled: true}\n",
        "migManager: {enabled: true}\n", "gfd: {enabled: false}\n", "toolkit: {enabled: false}\n",
        "scheduler: {enabled: false}\n", "daemonsets: {labels: {a: true}}\n",
        "daemonsets: {rollingUpdate: {maxUnavailable: many}}\n", "agent: 5\n",
        "daemonsets: {rollingUpdate: {maxUnavailable: 200%}}\n", "scheduler: {policy: Nope}\n",
        "scheduler: {clusterIP: 10.0.0.256}\n", "startupTaint: {keys: ['a b']}\n",
        "limits: {stopBypass: [a.b]}\n", "agent: {resources: {limits: {memory: 5Q}}}\n",
        "devicePlugin: {config: {name: slices}}\n", "mig: mixed\n", "driver: {secretEnv: a}\n",
        "platform: {openshift: true}\n", "hostPaths: {driverInstallDir: relative}\n",
        "toolkit: {enabled: perhaps}\n", "dcgmExporter: {enabled: maybe}\n",
        "operator: {runtimeClass: 'A B'}\n", "dcgmExporter: {serviceMonitor: {enabled: perhaps}}\n",
        "limits: {failOpen: [a, b], stopBypass: [b]}\n",
        "limits: {failOpen: ['*'], stopBypass: [b]}\n",
        "podMonitor: {enabled: true}\ndcgmExporter: {serviceMonitor: {enabled: true}}\n"));

}  // namespace
}  // namespace tessera::components
