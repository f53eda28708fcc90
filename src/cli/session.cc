// SPDX-License-Identifier: Apache-2.0
#include "src/cli/session.h"

#include <algorithm>
#include <utility>

#include "src/base/file.h"
#include "src/cli/view.h"

namespace tessera::cli {
namespace {

// The number of failed attempts after which a server counts as unreachable. A server that is only
// restarting answers one of these attempts.
constexpr int kMaxFailures = 3;

std::string KubeconfigInHome(const kube::GetEnv& getenv) {
  const char* home = getenv("HOME");
  return JoinPath(home == nullptr ? "" : home, ".kube/config");
}

// `place` is added to certificate errors. Errors of loading already name their file.
Result<kube::Config> WithUsableCertificates(Result<kube::Config> config, const std::string& place) {
  if (config.ok()) RETURN_IF_ERROR(kube::CheckCertificates(*config).Annotate(place));
  return config;
}

}  // namespace

kube::ClientOptions ClientOptionsOf(Duration timeout) {
  kube::ClientOptions options;
  options.user_agent = "tessera-cli";
  options.deadline = timeout;
  options.max_attempts = 2;
  return options;
}

Session::Session(net::IoThread& io, TaskRunner& runner, SessionOptions options, OnReady on_ready)
    : runner_(runner),
      options_(std::move(options)),
      on_ready_(std::move(on_ready)),
      client_(io, runner, options_.config, ClientOptionsOf(options_.timeout)) {
  runner_.PostDelayed(options_.timeout, [this, weak = weak_.Get()] {
    if (!weak) return;
    NotifyReady(Error(Code::kDeadlineExceeded,
                      "{} did not list all nodes and pods within {} s{}{}: "
                      "raise --timeout",
                      options_.config.server.ToString(),
                      std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count(),
                      last_error_.ok() ? "" : "; the last error was ", last_error_.message()));
  });
  StartReading(device::MemoryUnit::kGiB, /*with_quota=*/true);
  if (!options_.follow) return;
  probe_.emplace(client_, options_.probe_interval,
                 ledger::ServerProbe::Handlers{
                     .on_answer = [this] { OnRecovered(ledger::ServerProbe::kPath); },
                     .on_silence =
                         [this](const Status& status, WallTime since) {
                           SetOutage(ledger::ServerProbe::kPath, status, since);
                         }});
}

void Session::SetOutage(std::string_view what, const Status& status, WallTime since) {
  outages_.Set(what, WithRemedy(what, status), since);
}

void Session::StartReading(device::MemoryUnit unit, bool with_quota) {
  feed_.reset();
  snapshot_.reset();
  ledger::LedgerOptions options;
  options.policy = options_.policy;
  options.gpu_mem_unit = unit;
  auto ledger = ledger::ClusterLedger::Make(options, &runner_.clock());
  if (!ledger.ok()) return NotifyReady(ledger.status().Annotate("--policy"));
  ledger_ = *std::move(ledger);
  with_quota_ = with_quota;
  ledger::FeedOptions feed{.pods_ns = options_.pods_ns,
                           .node_selector = options_.node_selector,
                           .pod_selector = options_.pod_selector,
                           .watches_all_pods = !options_.kept_pod.empty(),
                           .keeps_scheduling_constraints = true};
  if (!with_quota) feed.quota_name.clear();
  Delegate& self = *this;
  if (options_.follow) {
    feed_ = std::make_unique<ledger::ClusterFeed>(client_, *ledger_, feed, self);
  } else {
    snapshot_ = std::make_unique<Snapshot>(client_, *ledger_,
                                           Snapshot::Options{feed, options_.kept_pod}, self);
  }
}

// Posted, because the calling feed must not be destroyed inside its callback.
void Session::PostStartReading(device::MemoryUnit unit, bool with_quota) {
  runner_.Post([this, unit, with_quota, weak = weak_.Get()] {
    if (weak) StartReading(unit, with_quota);
  });
}

void Session::NotifyReady(Status status) {
  if (!on_ready_) return;
  // on_ready may destroy this object.
  runner_.Post([on_ready = std::exchange(on_ready_, nullptr), status = std::move(status),
                weak = weak_.Get()] {
    if (weak) on_ready(status);
  });
}

const kube::PodObject* Session::FindPod(const std::string& ns, const std::string& name) const {
  const std::string key = kube::KeyOf(ns, name);
  return snapshot_ ? snapshot_->FindPod(key) : feed_->FindPod(key);
}

void Session::OnSynced() {
  const device::MemoryUnit unit = ledger_->OfferedMemoryUnit();
  if (unit != ledger_->options().gpu_mem_unit) return PostStartReading(unit, with_quota_);
  NotifyReady(Status::Ok());
}

Status Session::WithRemedy(std::string_view what, const Status& status) const {
  const std::string server = options_.config.server.ToString();
  switch (status.code()) {
    case Code::kUnauthenticated:
      return status.Annotate(
          fmt::format("{} rejects the credentials: log in again, or use "
                      "another --context",
                      server));
    case Code::kPermissionDenied:
      return status.Annotate(
          fmt::format("no permission to read all {} of the cluster: ask an administrator for get, "
                      "list and watch "
                      "on nodes and pods (ClusterRole tessera-view)",
                      what));
    default:
      return status.Annotate(
          fmt::format("{} does not answer: check that it is up, and that it is the right server "
                      "(--kubeconfig, --context)",
                      server));
  }
}

void Session::OnError(std::string_view what, const Status& status) {
  last_error_ = status;
  if (status.code() == Code::kAborted) {
    return PostStartReading(ledger_->options().gpu_mem_unit, with_quota_);
  }
  if (status.code() == Code::kFailedPrecondition) {
    // INVALID_ARGUMENT instead of UNAVAILABLE, because waiting does not change the URL.
    return NotifyReady(Error(Code::kInvalidArgument,
                             "server: {} of the kubeconfig must begin with https://: {}",
                             options_.config.server.ToString(), status.message()));
  }
  const std::string& selector = what == "nodes" ? options_.node_selector : options_.pod_selector;
  if (!selector.empty() && status.code() == Code::kInvalidArgument &&
      status.message().ends_with("HTTP 400)")) {
    return NotifyReady(status.Annotate(fmt::format("-l {}", selector)));
  }
  const bool is_rejected =
      status.code() == Code::kPermissionDenied || status.code() == Code::kUnauthenticated;
  if (what == "quota" &&
      (status.code() == Code::kPermissionDenied || status.code() == Code::kInvalidArgument)) {
    // DATA_LOSS instead of INVALID_ARGUMENT, because the error is in the cluster, not in the
    // command.
    quota_problem_ = status.code() == Code::kPermissionDenied
                         ? status
                         : Status(Code::kDataLoss, status.message());
    if (status.code() == Code::kPermissionDenied && with_quota_) {
      PostStartReading(ledger_->options().gpu_mem_unit, /*with_quota=*/false);
    }
    return;
  }
  // INVALID_ARGUMENT means that one object is invalid, not that the watch fails.
  if (what != "quota" && status.code() != Code::kInvalidArgument) {
    SetOutage(what, status, runner_.clock().WallNow());
  }
  if (is_rejected || (status.code() == Code::kUnavailable && ++failures_ >= kMaxFailures)) {
    NotifyReady(WithRemedy(what, status));
  }
}

KubeconfigFiles FindKubeconfig(const std::string& kubeconfig, const kube::GetEnv& getenv) {
  if (!kubeconfig.empty()) return {.paths = kubeconfig};
  const char* list = getenv("KUBECONFIG");
  if (list != nullptr && *list != '\0') return {.paths = list, .is_list = true};
  const std::string in_home = KubeconfigInHome(getenv);
  return {.paths = PathExists(in_home) ? in_home : ""};
}

Result<kube::Config> FindClusterConfig(const std::string& kubeconfig, const std::string& context,
                                       const kube::GetEnv& getenv) {
  const KubeconfigFiles files = FindKubeconfig(kubeconfig, getenv);
  if (files.is_list) {
    return WithUsableCertificates(kube::LoadKubeconfigs(files.paths, context, getenv),
                                  "$KUBECONFIG");
  }
  if (!files.paths.empty()) {
    return WithUsableCertificates(kube::LoadKubeconfig(files.paths, context, getenv), files.paths);
  }
  Result<kube::Config> in_cluster = kube::InClusterConfig(getenv);
  if (in_cluster.ok()) return in_cluster;
  return Error(Code::kFailedPrecondition,
               "no kubeconfig: $KUBECONFIG is not set, {} does not exist, and this is not a pod: "
               "give --kubeconfig FILE",
               KubeconfigInHome(getenv));
}

Status NoSuchPod(const ledger::ClusterLedger& ledger, const std::string& ns,
                 const std::string& name) {
  std::vector<std::string> names_in_ns;
  std::string other_ns;  // the first other namespace with a pod of this name
  for (const auto& [uid, pod] : ledger.pods()) {
    if (pod.request.ns == ns) names_in_ns.push_back(pod.request.name);
    if (pod.request.ns != ns && pod.request.name == name && other_ns.empty())
      other_ns = pod.request.ns;
  }
  if (!other_ns.empty()) {
    return Error(Code::kNotFound, "there is no pod \"{}\" in namespace {}, but in {}: -n {}", name,
                 ns, other_ns, other_ns);
  }
  return Error(Code::kNotFound, "there is no pod \"{}\" in namespace {}{}", name, ns,
               DidYouMean(name, names_in_ns));
}

}  // namespace tessera::cli
