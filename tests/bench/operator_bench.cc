// SPDX-License-Identifier: Apache-2.0
// Measures the operator on a large cluster. A fake API server has nodes with GPUs and an agent's
// pod on each node, in protobuf and with the fields that objects usually have. The program itself
// runs with the default settings. Prints its memory, the time of a comparison of the wanted with
// the actual state (without requests), and the number of its writes while nothing changes.
//   operator_bench PATH_OF_TESSERA_OPERATOR [nodes, 5000] [changes, 500]
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/components/objects.h"
#include "src/components/settings.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/kube/testing/wire_writer.h"
#include "src/net/http_client.h"
#include "src/net/testing/loopback.h"

namespace tessera {
namespace {

using kube::testing::WireWriter;

constexpr int kMetricsPort = 19499;
constexpr char kResource[] = "/apis/tessera.dev/v1alpha1/tesseras/tessera";

std::string ConditionOf(std::string_view type) {
  return WireWriter().Bytes(1, type).Bytes(2, "True").Bytes(5, "GPUsHealthy").text();
}

// Every hundredth node has a problem.
std::vector<std::string> Nodes(int count) {
  Random random(1);
  std::vector<std::string> messages;
  for (int i = 0; i < count; ++i) {
    kube::NodeObject node = kube::testing::SampleNode(random, i);
    node.meta.name = fmt::format("gpu-node-{:05}", i);
    node.meta.labels[std::string(names::kLabelGpuPresent)] = "true";
    node.ready = i % 100 != 0;
    messages.push_back(
        kube::testing::MessageOf(node) +
        WireWriter().Bytes(3, WireWriter().Bytes(4, ConditionOf("GPUReady")).text()).text());
  }
  return messages;
}

std::vector<std::string> Pods(int count) {
  Random random(2);
  std::vector<std::string> messages;
  for (int i = 0; i < count; ++i) {
    kube::PodObject pod = kube::testing::SamplePod(random, i);
    pod.meta.name = fmt::format("tessera-agent-{:05}", i);
    pod.meta.ns = names::kSystemNamespace;
    pod.node_name = fmt::format("gpu-node-{:05}", i);
    messages.push_back(
        kube::testing::MessageOf(pod) +
        WireWriter().Bytes(3, WireWriter().Bytes(2, ConditionOf("Ready")).text()).text());
  }
  return messages;
}

std::string PluralOf(const std::string& kind) {
  const std::string lower = ToLower(kind);
  if (lower.ends_with("policy")) return lower.substr(0, lower.size() - 1) + "ies";
  return lower + (lower.ends_with("class") ? "es" : "s");
}

// Adds the discovery documents of the types that the operator applies.
void PutTypes(kube::testing::FakeApiServer* server) {
  std::vector<Json> objects = components::RenderObjects(components::ParseSettings(Json()).value());
  objects.push_back(components::TesseraDefinition());
  std::map<std::string, Json> lists;
  for (const Json& object : objects) {
    const std::string version = object.StringAt("apiVersion").value();
    const std::string path =
        (version.find('/') == std::string::npos ? "/api/" : "/apis/") + version;
    const std::string kind = object.StringAt("kind").value();
    Json& list = lists.emplace(path, Json::MakeObject()).first->second;
    list.EnsureArray("resources")
        .value()
        ->Append(Json::MakeObject(
            {{"name", Json::String(PluralOf(kind))},
             {"kind", Json::String(kind)},
             {"namespaced", Json::Bool(object.Find("metadata")->Find("namespace") != nullptr)}}));
  }
  for (auto& [path, list] : lists) server->Put(path, std::move(list));
}

void PutResource(kube::testing::FakeApiServer* server, int change) {
  Json resource = Json::MakeObject({{"spec", Json::MakeObject()}});
  if (const Json* old = server->Find(kResource)) resource = *old;
  resource.Set("metadata",
               ParseJson(fmt::format(R"({{"name":"tessera","uid":"u","generation":1,"annotations":)"
                                     R"({{"change":"{}"}},"finalizers":["{}"]}})",
                                     change, names::kOperatorFinalizer))
                   .value());
  server->Put(kResource, std::move(resource));
}

class OperatorRun {
 public:
  OperatorRun(const char* program, int nodes, int changes)
      : program_(program), nodes_(nodes), changes_(changes) {}

  bool Measure() {
    server_.SetCollection("nodes", "Node", Nodes(nodes_));
    server_.SetCollection("pods", "Pod", Pods(nodes_));
    PutTypes(&server_);
    PutResource(&server_, 0);
    const std::string kubeconfig = JoinPath(dir_.path(), "config");
    (void)WriteFileAtomically(kubeconfig, server_.Kubeconfig("tessera-system"), 0600);
    child_ = ::fork();
    if (child_ == 0) Exec(kubeconfig);
    const bool ok = MeasureChild();
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    return ok;
  }

 private:
  [[noreturn]] void Exec(const std::string& kubeconfig) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(127);
    const std::string address = fmt::format("127.0.0.1:{}", kMetricsPort);
    ::execl(program_, program_, "--kubeconfig", kubeconfig.c_str(), "--no-leader-elect",
            "--metrics-address", address.c_str(), nullptr);
    ::_exit(127);
  }

  bool HasStatus() const {
    const Json* resource = server_.Find(kResource);
    return resource != nullptr && resource->Find("status") != nullptr;
  }

  bool MeasureChild() {
    if (!runner_.RunUntil([this] { return HasStatus(); }, std::chrono::minutes(2))) return false;
    runner_.RunFor(std::chrono::seconds(5));
    const int writes = server_.writes();
    const auto before = Buckets();
    for (int i = 1; i <= changes_; ++i) {
      PutResource(&server_, i);
      runner_.RunFor(std::chrono::milliseconds(60));
    }
    const auto after = Buckets();
    const int during = server_.writes() - writes;
    server_.OnRequest([](const net::Request& request) {
      if (request.method == "GET") return;
      std::printf("  at rest: %s %s\n", request.method.c_str(), request.target.c_str());
    });
    runner_.RunFor(std::chrono::seconds(20));
    std::printf("%d nodes, %d agents, %d changes that need no write\n", nodes_, nodes_, changes_);
    std::printf("  writes to install            %d\n", writes);
    std::printf("  writes during the changes    %d\n", during);
    std::printf("  writes at rest, 20 s         %d (target 0)\n",
                server_.writes() - writes - during);
    std::printf("  memory, VmRSS / VmHWM        %s / %s (target 20 MiB)\n",
                Memory("VmRSS:").c_str(), Memory("VmHWM:").c_str());
    PrintReconciles(before, after);
    return true;
  }

  void PrintReconciles(const std::map<double, double>& before,
                       const std::map<double, double>& after) const {
    if (after.empty()) return;
    const auto new_samples_up_to = [&](double bound) { return after.at(bound) - before.at(bound); };
    const double total = new_samples_up_to(after.rbegin()->first);
    std::printf("  reconciles                   %.0f (target: 99 %% in at most 50 ms)\n", total);
    for (const auto& [bound, count] : after) {
      const double share = 100 * new_samples_up_to(bound) / total;
      if (share > 0 && bound < 1e9) {
        std::printf("    in at most %5g ms          %5.1f %%\n", bound * 1000, share);
      }
      if (share == 100) return;
    }
  }

  std::string Memory(std::string_view field) const {
    const std::string text = ReadFile(fmt::format("/proc/{}/status", child_)).value_or("");
    const size_t at = text.find(field);
    if (at == std::string::npos) return "?";
    const size_t begin = at + field.size();
    return std::string(Trim(std::string_view(text).substr(begin, text.find('\n', at) - begin)));
  }

  // Cumulative counts of the histogram by bound.
  std::map<double, double> Buckets() {
    net::HttpClient http(io_, runner_,
                         {.server = {.address = {.host = "127.0.0.1", .port = kMetricsPort}}});
    std::optional<std::string> page;
    const net::HttpCall call =
        http.Send({.method = "GET", .target = "/metrics"}, {},
                  [&](const auto& response) { page = response.ok() ? response->body : ""; });
    runner_.RunUntil([&] { return page.has_value(); });
    std::map<double, double> buckets;
    for (const std::string_view line : Split(page.value_or(""), '\n')) {
      constexpr std::string_view kPrefix = "tessera_operator_reconcile_seconds_bucket{le=\"";
      if (!line.starts_with(kPrefix)) continue;
      const std::string bound(
          line.substr(kPrefix.size(), line.find('"', kPrefix.size()) - kPrefix.size()));
      const double value = std::atof(std::string(line.substr(line.rfind(' '))).c_str());
      buckets[bound == "+Inf" ? 1e9 : std::atof(bound.c_str())] = value;
    }
    return buckets;
  }

  const char* program_;
  const int nodes_;
  const int changes_;
  const TempDir dir_;
  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  pid_t child_ = -1;
};

int Main(int argc, char** argv) {
  const int nodes = argc > 2 ? std::atoi(argv[2]) : 5000;
  const int changes = argc > 3 ? std::atoi(argv[3]) : 500;
  if (argc < 2 || nodes < 1 || changes < 1) {
    std::fprintf(stderr, "usage: operator_bench PATH_OF_TESSERA_OPERATOR [nodes] [changes]\n");
    return 64;
  }
  return OperatorRun(argv[1], nodes, changes).Measure() ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
