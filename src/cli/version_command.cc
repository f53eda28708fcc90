// SPDX-License-Identifier: Apache-2.0
// `tessera version`: the versions of this program and of all components of the cluster.
#include <CLI/CLI.hpp>
#include <memory>

#include "api/names.h"
#include "src/base/version.h"
#include "src/cli/cluster_client.h"
#include "src/cli/doctor/facts.h"
#include "src/cli/object_fields.h"
#include "src/cli/options.h"
#include "src/cli/verbs.h"
#include "src/formats/json.h"
#include "src/formats/metric_line.h"

namespace tessera::cli {
namespace {

struct VersionOptions {
  ClusterOptions cluster;
  StyleOptions style;
  bool client = false;
};

void AddRow(const std::string& component, const std::string& place, const std::string& version,
            Listing* list) {
  list->rows.push_back({Json::MakeObject({{"metadata", MetadataOf("", component)},
                                          {"where", Json::String(place)},
                                          {"version", Json::String(version)}}),
                        {component, place.empty() ? "-" : place, version}});
}

// The version that a component's metrics page names.
std::string VersionIn(const Result<std::string>& page) {
  if (!page.ok()) return "unknown: " + std::string(page.status().message());
  const std::vector<MetricLine> samples = SamplesOf(*page, "tessera_build_info");
  return samples.empty() ? "unknown" : std::string(LabelIn(samples[0].labels, "version"));
}

const Json::Array& ContainersOf(const Json& pod) { return ItemsAt(pod, {"spec", "containers"}); }

// The number of the container port "metrics"; "" if the pod has none.
std::string MetricsPortOf(const Json& pod) {
  for (const Json& container : ContainersOf(pod)) {
    for (const Json& port : ItemsAt(container, {"ports"})) {
      if (TextAt(port, {"name"}) != "metrics") continue;
      return std::to_string(port.IntAt("containerPort").value_or(0));
    }
  }
  return "";
}

// For a component without metrics, its image stands for its version.
std::string ImageOf(const Json& pod) {
  const Json::Array& containers = ContainersOf(pod);
  return containers.empty() ? "unknown" : "image " + TextAt(containers.front(), {"image"});
}

// The image of the init container that installs tessera-runtime; "" if the pod has none.
std::string RuntimeImageOf(const Json& pod) {
  for (const Json& container : ItemsAt(pod, {"spec", "initContainers"})) {
    if (TextAt(container, {"name"}) == "install-runtime") return TextAt(container, {"image"});
  }
  return "";
}

Status AddComponents(const VersionOptions& options, Listing* list) {
  ASSIGN_OR_RETURN(kube::Config config, ConfigOf(options.cluster));
  ClusterClient api(std::move(config), options.cluster.timeout());
  Result<std::string> server = std::string();
  Result<std::vector<Json>> pods = std::vector<Json>(), nodes = std::vector<Json>();
  api.ReadText("/version", 1 << 16, &server);
  api.ReadList({.type = kube::kPods, .ns = std::string(names::kSystemNamespace)}, &pods);
  api.ReadList({.type = kube::kNodes}, &nodes);
  api.Wait();
  RETURN_IF_ERROR(server.status());
  RETURN_IF_ERROR(pods.status().Annotate("cannot list the components"));
  const Result<Json> version = ParseJson(*server);
  AddRow("kubernetes", "", version.ok() ? version->StringAt("gitVersion").value_or("unknown") : "",
         list);
  std::vector<std::pair<const Json*, Result<std::string>>> pages;
  for (const Json& pod : *pods) pages.emplace_back(&pod, Status(Code::kUnavailable, ""));
  for (auto& [pod, page] : pages) {
    const std::string port = MetricsPortOf(*pod);
    if (port.empty()) continue;
    api.ReadPage(TextAt(*pod, {"metadata", "name"}), port, "/metrics", &page);
  }
  api.Wait();
  std::ranges::sort(pages, {}, [](const auto& entry) {
    const auto& labels = TextAt(*entry.first, {"metadata", "labels", kNameLabel});
    return std::pair(labels, TextAt(*entry.first, {"spec", "nodeName"}));
  });
  for (const auto& [pod, page] : pages) {
    const std::string component = TextAt(*pod, {"metadata", "labels", kNameLabel});
    if (component.empty()) continue;
    const std::string node = TextAt(*pod, {"spec", "nodeName"});
    const std::string version = MetricsPortOf(*pod).empty() ? ImageOf(*pod) : VersionIn(page);
    AddRow(component, node, version, list);
    // The agent's pod installs tessera-runtime, normally from the image of the agent.
    const std::string runtime = "image " + RuntimeImageOf(*pod);
    if (runtime != "image ") {
      AddRow("tessera-runtime", node, runtime == ImageOf(*pod) ? version : runtime, list);
    }
  }
  if (!nodes.ok()) return Status::Ok();
  ClusterFacts facts;
  facts.nodes = std::move(nodes);
  facts.DeriveInventoriesAndAssignments();
  for (const auto& [node, inventory] : facts.inventories) {
    if (!inventory.driver_version.empty()) {
      AddRow("nvidia-driver", node, inventory.driver_version, list);
    }
  }
  return Status::Ok();
}

int RunVersion(const VersionOptions& options) {
  const Result<Style> style = StyleOf(options.style);
  if (!style.ok()) return Fail(style.status());
  Listing list{.kind = "Version", .columns = {"COMPONENT", "NODE", "VERSION"}};
  AddRow("tessera", "", std::string(kTesseraVersion), &list);
  const Status status = options.client ? Status::Ok() : AddComponents(options, &list);
  const Result<std::string> text = Print(std::move(list), *style);
  if (!text.ok()) return Fail(text.status());
  if (const int failed = PrintOut(*text)) return failed;
  return status.ok() ? 0 : Fail(status);
}

}  // namespace

Action AddVersion(CLI::App* app) {
  auto options = std::make_shared<VersionOptions>();
  app->add_flag("--client", options->client, "only the version of this program");
  AddListOptions(app, &options->style);
  AddClusterOptions(app, &options->cluster);
  return [options] { return RunVersion(*options); };
}

}  // namespace tessera::cli
