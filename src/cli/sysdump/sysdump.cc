// SPDX-License-Identifier: Apache-2.0
// `tessera sysdump`: collects the files of a report, bounded in size and time.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <map>
#include <memory>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/base/version.h"
#include "src/cli/doctor/checks.h"
#include "src/cli/options.h"
#include "src/cli/sysdump/archive.h"
#include "src/cli/sysdump/redact.h"
#include "src/cli/verbs.h"
#include "src/formats/json.h"
#include "src/ledger/pod_request.h"

namespace tessera::cli {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kMaxLog = kMiB;
constexpr Duration kDumpTimeout = std::chrono::seconds(10);
constexpr std::string_view kFolder = "tessera-sysdump/";
constexpr const char* kReadMe =
    "A report about Tessera, made by tessera sysdump of version {}.\n\n"
    "README.txt      this text\n"
    "errors.txt      what could not be read, or was left out\n"
    "status.txt      tessera status\n"
    "doctor.txt      tessera doctor\n"
    "versions.json   Kubernetes, and this program\n"
    "objects/        nodes, pods with GPUs, Tessera's own objects, Events\n"
    "pages/NODE/     metrics and container usage of each agent\n"
    "pages/scheduler.txt  metrics of the scheduler's leader\n"
    "logs/POD/       logs of Tessera's pods, the end of each\n\n"
    "Left out: Secrets; of pods of users their environment, commands, arguments, volumes and\n"
    "annotations of other systems; annotations of nodes by other systems; tokens and keys in "
    "logs.\n"
    "Names of pods, namespaces, nodes and images are in it: read it before you pass it on.\n";

struct SysdumpOptions {
  ClusterOptions cluster;
  std::string file;
  int max_mib = 100;
  int limit_s = 120;
};

class Sysdump {
 public:
  Sysdump(const SysdumpOptions& options, kube::Config config)
      : options_(options),
        api_(std::move(config), options.cluster.timeout(), kDumpTimeout),
        deadline_(api_.Now() + std::chrono::seconds(options.limit_s)) {}

  Result<std::string> Collect() {
    ASSIGN_OR_RETURN(const std::unique_ptr<ClusterFacts> facts, ReadFacts(api_));
    AddReports(*facts);
    AddObjects(*facts);
    AddPages(*facts);
    AddLogs(*facts);
    files_.insert(files_.begin(),
                  {{ReportPath("README.txt"), fmt::format(kReadMe, kTesseraVersion)},
                   {ReportPath("errors.txt"), errors_}});
    return TarGz(files_, std::time(nullptr));
  }
  size_t file_count() const { return files_.size(); }
  bool is_complete() const { return errors_.empty(); }

 private:
  static std::string ReportPath(std::string_view name) {
    return std::string(kFolder) + std::string(name);
  }

  void AddFile(std::string_view name, std::string text) {
    if (size_ + text.size() > options_.max_mib * kMiB) {
      return AddError(name, "left out: the report would exceed --max-size");
    }
    std::string path = ReportPath(name);
    // A node's name may have 253 characters.
    if (!FitsInArchive(path)) return AddError(name, "left out: its path is too long for a .tar");
    size_ += text.size();
    files_.push_back({std::move(path), std::move(text)});
  }
  void AddError(std::string_view name, std::string_view why) {
    errors_ += fmt::format("{}: {}\n", name, why);
  }
  void AddJson(std::string_view name, const Json& json) { AddFile(name, json.Pretty() + "\n"); }
  template <typename Reduce>
  void AddList(std::string_view name, const Result<std::vector<Json>>& objects, Reduce reduce) {
    if (!objects.ok()) return AddError(name, objects.status().message());
    Json list = Json::MakeArray();
    for (const Json& object : *objects) list.Append(reduce(object));
    AddJson(name, list);
  }
  void Wait() {
    const Duration remaining = deadline_ - api_.Now();
    api_.Wait(std::max<Duration>(remaining, std::chrono::seconds(1)));
  }

  void AddReports(const ClusterFacts& facts) {
    AddFile("status.txt", ShowStatus(StatusOf(facts.installation), {}).value_or(""));
    AddFile("doctor.txt", WithoutTokens(ShowFindings(Diagnose(facts), {}).value_or("")));
    Result<std::string> server = std::string();
    api_.ReadText("/version", 1 << 16, &server);
    Wait();
    const Result<Json> version = server.ok() ? ParseJson(*server) : Result<Json>(server.status());
    Json versions = Json::MakeObject({{"tessera", Json::String(kTesseraVersion)}});
    if (version.ok()) versions.Set("kubernetes", *version);
    AddJson("versions.json", versions);
  }

  static bool IsInSystemNamespace(const Json& object) {
    return TextAt(object, {"metadata", "namespace"}) == names::kSystemNamespace;
  }

  void AddObjects(const ClusterFacts& facts) {
    AddList("objects/nodes.json", facts.nodes, ReducedNode);
    std::vector<Json> system_pods, with_gpus;
    for (const Json& pod : *facts.pods) {
      if (IsInSystemNamespace(pod)) {
        system_pods.push_back(pod);
      } else if (ledger::RequestsGpus(pod)) {
        with_gpus.push_back(pod);
      }
    }
    AddList("objects/pods-with-gpus.json", with_gpus, ReducedPod);
    AddList("objects/pods.json", system_pods, WithoutSecrets);
    if (facts.quota.ok()) AddJson("objects/gpuquota.json", WithoutSecrets(*facts.quota));
    struct Kind {
      const char* name;
      kube::ResourceType type;
      std::string ns;
    };
    const std::string system(names::kSystemNamespace);
    const Kind kinds[] = {{"daemonsets", kube::kDaemonSets, system},
                          {"deployments", kube::kDeployments, system},
                          {"configmaps", kube::kConfigMaps, system},
                          {"services", kube::kServices, system},
                          {"endpointslices", kube::kEndpointSlices, system},
                          {"leases", kube::kLeases, system},
                          {"events", kube::kEvents, system},
                          {"runtimeclasses", kube::kRuntimeClasses, ""},
                          {"validatingwebhooks", kube::kValidatingWebhooks, ""},
                          {"tesseras", kube::kTesseras, ""}};
    std::map<std::string, Result<std::vector<Json>>> lists;
    for (const Kind& kind : kinds) {
      auto& list = lists.emplace(kind.name, std::vector<Json>()).first->second;
      api_.ReadList({.type = kind.type, .ns = kind.ns}, &list);
    }
    Result<std::vector<Json>> node_events = std::vector<Json>(),
                              tessera_events = std::vector<Json>();
    api_.ReadList({.type = kube::kEvents, .field_selector = "involvedObject.kind=Node"},
                  &node_events);
    api_.ReadList({.type = kube::kEvents, .field_selector = "involvedObject.kind=Tessera"},
                  &tessera_events);
    Wait();
    // Without an operator the cluster has no such type.
    if (lists.at("tesseras").status().code() == Code::kNotFound) lists.erase("tesseras");
    for (const auto& [name, list] : lists) {
      AddList(fmt::format("objects/{}.json", name), list, WithoutSecrets);
    }
    AddList("objects/events-of-nodes.json", node_events, WithoutSecrets);
    AddList("objects/events-of-tesseras.json", tessera_events, WithoutSecrets);
  }

  void AddPages(const ClusterFacts& facts) {
    for (const auto& [node, page] : facts.agent_metrics) {
      if (!page.ok()) {
        AddError(fmt::format("pages/{}", node), page.status().message());
        continue;
      }
      AddFile(fmt::format("pages/{}/metrics.txt", node), *page);
    }
    for (const auto& [node, page] : facts.agent_uses) {
      if (!page.ok()) continue;
      Json list = Json::MakeArray();
      for (const ContainerUse& use : page->uses) list.Append(JsonOfUse(use));
      AddJson(fmt::format("pages/{}/containers.json", node), list);
    }
    if (facts.installation.leader_metrics.ok()) {
      AddFile("pages/scheduler.txt", *facts.installation.leader_metrics);
    }
  }

  void AddLogs(const ClusterFacts& facts) {
    std::map<std::string, Result<std::string>> logs;  // by file
    for (const Json& pod : *facts.pods) {
      if (!IsInSystemNamespace(pod)) continue;
      const std::string name = TextAt(pod, {"metadata", "name"});
      for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
        for (const Json& container : ItemsAt(pod, {"status", list})) {
          RequestLogs(name, container, &logs);
        }
      }
    }
    Wait();
    for (const auto& [file, text] : logs) {
      if (text.ok()) {
        AddFile(file, WithoutTokens(*text));
      } else {
        AddError(file, text.status().message());
      }
    }
  }

  void RequestLogs(const std::string& pod, const Json& container,
                   std::map<std::string, Result<std::string>>* logs) {
    const std::string name = container.StringAt("name").value_or("");
    const std::string target = fmt::format(
        "{}/log?container={}&tailLines=4000&limitBytes={}",
        kube::PathOf(kube::Pod(std::string(names::kSystemNamespace), pod)), name, kMaxLog);
    const auto request = [&](std::string_view suffix, std::string_view query) {
      auto& log = logs->emplace(fmt::format("logs/{}/{}{}.log", pod, name, suffix), std::string())
                      .first->second;
      api_.ReadText(target + std::string(query), kMaxLog, &log);
    };
    request("", "");
    if (container.IntAt("restartCount").value_or(0) > 0) request("-previous", "&previous=true");
  }

  const SysdumpOptions& options_;
  ClusterClient api_;
  const MonotonicTime deadline_;
  std::vector<ArchiveFile> files_;
  std::string errors_;
  size_t size_ = 0;
};

std::string DefaultFile() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[64];
  std::strftime(text, sizeof(text), "tessera-sysdump-%Y%m%d-%H%M%S.tar.gz", &utc);
  return text;
}

int RunSysdump(const SysdumpOptions& options) {
  Result<kube::Config> config = ConfigOf(options.cluster);
  if (!config.ok()) return Fail(config.status());
  Sysdump dump(options, *std::move(config));
  const Result<std::string> archive = dump.Collect();
  if (!archive.ok()) return Fail(archive.status());
  const std::string file = options.file.empty() ? DefaultFile() : options.file;
  const Status written = WriteFileAtomically(file, *archive, 0600);
  if (!written.ok()) return Fail(written.Annotate("the report"));
  return PrintOut(fmt::format("{}: {} files, {} KiB{}. Its README.txt says what is in it.\n", file,
                              dump.file_count(), (archive->size() + 1023) / 1024,
                              dump.is_complete() ? "" : "; errors.txt says what is missing"));
}

}  // namespace

Action AddSysdump(CLI::App* app) {
  auto options = std::make_shared<SysdumpOptions>();
  app->add_option("-f,--file", options->file,
                  "file to write; default: tessera-sysdump-DATE.tar.gz");
  app->add_option("--max-size", options->max_mib, "MiB before compression; the rest is left out")
      ->check(CLI::Range(1, 2048))  // zlib counts the bytes of a buffer in 32 bits
      ->capture_default_str();
  app->add_option("--time-limit", options->limit_s,
                  "seconds; answers that have not arrived then are left out")
      ->check(CLI::Range(5, 3600))
      ->capture_default_str();
  AddClusterOptions(app, &options->cluster);
  return [options] { return RunSysdump(*options); };
}

}  // namespace tessera::cli
