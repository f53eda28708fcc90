// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants_thread.h"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "src/agent/exporter/xid_events.h"
#include "src/agent/grants/allocation_grants.h"
#include "src/agent/grants/grant_server.h"
#include "src/agent/grants/grant_spans.h"
#include "src/agent/grants/start_checks.h"
#include "src/agent/grants/start_waits.h"
#include "src/agent/grants/take_over.h"
#include "src/agent/kubelet/kubelet_client.h"
#include "src/agent/limits/compute_members.h"
#include "src/agent/limits/share_history.h"
#include "src/agent/pods/pod_processes.h"
#include "src/agent/pods/remembered_pods.h"
#include "src/base/dir_watcher.h"
#include "src/base/log.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/process_reader.h"
#include "src/grant/journal.h"

namespace tessera::agent {
namespace {

// The token key was made when the agent first started on this node.
WallTime FirstStart(const std::string& state_dir) {
  struct stat info {};
  if (::stat(JoinPath(state_dir, GrantsThread::kKeyName).c_str(), &info) != 0) return WallTime{};
  return WallTime(std::chrono::seconds(info.st_mtim.tv_sec));
}

GrantOptions ServiceOptions(const GrantsThreadOptions& options, GrantMetrics* metrics,
                            PodProcesses* processes, PluginTakeover* take_over) {
  GrantOptions service = options.service;
  service.metrics = metrics;
  service.take_over = take_over;
  service.agent_installed_at = FirstStart(options.state_dir);
  if (options.nvml != nullptr) service.release.processes = processes;
  return service;
}

// `pods` may be null.
bool HasEnded(const Pods* pods, const ContainerRef& holder) {
  const PodInfo* pod = pods == nullptr ? nullptr : pods->Find(holder.pod_uid);
  return pod != nullptr && pod->HasEnded(holder.container);
}

std::string ContainerIdOf(const Pods* pods, const ContainerRef& holder) {
  const PodInfo* pod = pods == nullptr ? nullptr : pods->Find(holder.pod_uid);
  return pod == nullptr ? "" : pod->ContainerId(holder.container);
}

ContainerUsageOptions UsageOptions(const GrantsThreadOptions& options, const Pods* pods) {
  return {.limits_dir = options.service.limits_dir,
          .find = {.proc_root = options.proc_root},
          .stop_bypass = options.kill_on_bypass_namespaces,
          .has_ended = [pods](const ContainerRef& holder) { return HasEnded(pods, holder); },
          .container_id_of = [pods](const auto& holder) { return ContainerIdOf(pods, holder); }};
}

}  // namespace

// Lives on the grants' thread. Keep the order: each member uses members before it.
struct GrantsThread::State {
  State(GrantsThread* grants, grant::Journal grant_journal, const std::vector<std::string>& records,
        std::unique_ptr<Pods> pod_source)
      : journal(std::move(grant_journal)),
        ledger(&journal, records, &skipped),
        kubelet(&grants->runner_, grants->options_.pod_resources_socket, kKubeletListWait),
        pods(std::move(pod_source)),
        caller(&grants->runner_),
        gpu_processes(&grants->runner_, grants->options_.nvml, &caller),
        processes(grants->options_.proc_root, &gpu_processes, &caller),
        take_over(grants->options_.minors_of_other_plugins, &ledger),
        service(&grants->runner_,
                ServiceOptions(grants->options_, grants->metrics_, &processes, &take_over),
                grants->devices_, grants->signer_, &ledger, &kubelet, pods.get(),
                grants->options_.on_usage_changed),
        allocation(&grants->runner_, &service, &ledger, pods.get(),
                   grants->options_.service.gpu_mem_unit, grants->metrics_),
        usage(&grants->runner_, UsageOptions(grants->options_, pods.get()), &ledger, &gpu_processes,
              &caller,
              {.on_uses =
                   [this, grants, then = grants->options_.on_container_uses](const auto& uses) {
                     then(ControlCompute(grants->runner_.clock().Now(), *uses));
                   },
               .on_event = [this](const ContainerRef& holder,
                                  const PodEvent& event) { RecordEvent(holder, event); }}),
        checks(&grants->runner_, &service, &ledger, pods.get(), grants->devices_, grants->metrics_),
        server(&grants->runner_, {.uid = grants->options_.socket_client_uid}, grants->metrics_,
               [this, &runner = grants->runner_, signer = grants->signer_,
                record_span = grants->options_.record_span](const grant::GrantRequest& request,
                                                            GrantServer::Reply reply) {
                 if (record_span) {
                   const GrantSpansContext context{&runner.clock(), signer, &ledger, pods.get()};
                   reply = WithSpans(record_span, context, request, std::move(reply));
                 }
                 service.Handle(request, std::move(reply));
               }),
        watcher(&grants->runner_, DirName(grants->options_.socket),
                {.on_appeared = [](const std::string&) {},
                 .on_vanished = [this](const std::string&) { RestoreSocket(); },
                 .on_rescan = [this] { RestoreSocket(); }}),
        socket(grants->options_.socket) {}

  // Passes the containers to the compute control, and adds its measurements to the uses.
  std::shared_ptr<const ContainerUses> ControlCompute(MonotonicTime now, ContainerUses uses) {
    std::vector<ComputeControl::Member> members =
        ComputeMembers(usage.files(), uses, service.PodsWithAcceptedLimits());
    for (ContainerGpuUse& use : uses) {
      const auto member =
          std::ranges::find_if(members, [&](const auto& each) { return IsUseOf(use, each); });
      if (member == members.end()) continue;
      use.compute_class = member->share.priority;
      use.compute_limit = MilliGpu(std::lround(member->share.limit * 1000));
      use.compute_use = control.TakeUse(member->pod_uid, member->container, member->uuid);
    }
    share_histories.Update(now, &uses);
    control.Update(std::move(members));
    return std::make_shared<const ContainerUses>(std::move(uses));
  }

  void RecordEvent(const ContainerRef& holder, const PodEvent& event) {
    Log(event.warning ? Severity::kWarning : Severity::kInfo, event.message,
        {{"pod", holder.PodText()}, {"reason", event.reason}});
    if (pods == nullptr) return;
    if (const PodInfo* pod = pods->Find(holder.pod_uid)) pods->Record(*pod, event);
  }

  // Creates the socket again if a user or systemd-tmpfiles has deleted it from /run.
  void RestoreSocket() {
    if (server.SocketPresent()) return;
    Status status = MakeDirs(DirName(socket));
    if (status.ok()) status = server.Listen(socket);
    if (!status.ok())
      Log(Severity::kError, "cannot listen for grants", {{"error", status.ToString()}});
  }

  grant::Journal journal;
  size_t skipped = 0;
  GrantLedger ledger;
  GrpcPodResources kubelet;
  const std::unique_ptr<Pods> pods;
  gpu::ThreadCaller caller;
  gpu::ProcessReader gpu_processes;
  NodeProcesses processes;
  PluginTakeover take_over;
  GrantService service;
  AllocationGrants allocation;
  ComputeControl control;
  ShareHistories share_histories;
  ContainerUsage usage;
  StartChecks checks;
  XidEvents xid_events;
  GrantServer server;
  DirWatcher watcher;
  const std::string socket;
};

GrantsThread::GrantsThread(GrantsThreadOptions options, const DeviceSetHolder* devices,
                           const grant::TokenSigner* signer, GrantMetrics* metrics)
    : options_(std::move(options)), devices_(devices), signer_(signer), metrics_(metrics) {}

GrantsThread::~GrantsThread() {
  if (!thread_.joinable()) return;
  std::promise<void> destroyed;
  runner_.Post([&] {
    state_.reset();
    runner_.Quit();
    destroyed.set_value();
  });
  destroyed.get_future().wait();
  thread_.join();
}

Status GrantsThread::Start() {
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "grants");
    runner_.Run();
  });
  std::promise<Status> start_result;
  runner_.Post([&] { start_result.set_value(MakeState()); });
  return start_result.get_future().get();
}

void GrantsThread::Allocate(const std::string& resource, const std::vector<std::string>& ids,
                            std::function<void(Result<grant::Grant>)> done) {
  runner_.Post([this, resource, ids, done = std::move(done)]() mutable {
    if (state_ != nullptr) state_->allocation.Allocate(resource, ids, std::move(done));
  });
}

void GrantsThread::Check(const std::string& resource, const std::vector<std::string>& ids,
                         std::function<void(Status)> done) {
  runner_.Post([this, resource, ids, done = std::move(done)]() mutable {
    if (state_ != nullptr) state_->checks.Check(resource, ids, std::move(done));
  });
}

void GrantsThread::OnInventoryChanged() {
  runner_.Post([this] {
    if (state_ != nullptr) state_->service.OnInventoryChanged();
  });
}

void GrantsThread::RefreshDriver() {
  runner_.Post([this] {
    if (state_ != nullptr) state_->gpu_processes.Refresh();
  });
}

void GrantsThread::OnXid(const std::string& uuid, uint64_t code) {
  runner_.Post([this, uuid, code] {
    if (state_ == nullptr) return;
    const Holdings holdings = HoldingsOf(state_->ledger, state_->pods.get());
    for (const auto& [holder, event] :
         state_->xid_events.OnXid(holdings, uuid, code, runner_.clock().Now())) {
      state_->RecordEvent(holder, event);
    }
  });
}

void GrantsThread::GetHoldings(std::function<void(Holdings)> then) {
  runner_.Post([this, then = std::move(then)] {
    then(state_ != nullptr ? HoldingsOf(state_->ledger, state_->pods.get()) : Holdings());
  });
}

void GrantsThread::SetIsolationDisabled(bool disabled) {
  runner_.Post([this, disabled] {
    if (state_ != nullptr) state_->service.SetIsolationDisabled(disabled);
  });
}

std::unique_ptr<Pods> GrantsThread::MakePods() {
  auto pods = options_.make_pods ? options_.make_pods(&runner_) : nullptr;
  if (pods == nullptr) return nullptr;
  grant::Journal::Recovery recovery;
  auto dir = DirFd::Open(options_.state_dir);
  auto journal = dir.ok() ? grant::Journal::Open(*std::move(dir), std::string(kPodsName), &recovery)
                          : Result<grant::Journal>(dir.status());
  if (!journal.ok()) {
    Log(Severity::kWarning,
        "cannot open the journal of pods: an agent that starts while the API server is down will "
        "not know the pods",
        {{"error", journal.status().ToString()}});
    return pods;
  }
  return std::make_unique<RememberedPods>(
      std::move(pods), std::make_unique<grant::Journal>(*std::move(journal)), recovery.records);
}

Status GrantsThread::MakeState() {
  ASSIGN_OR_RETURN(DirFd dir, DirFd::Open(options_.state_dir));
  grant::Journal::Recovery recovery;
  ASSIGN_OR_RETURN(grant::Journal journal,
                   grant::Journal::Open(std::move(dir), std::string(kJournalName), &recovery));
  state_ = std::make_unique<State>(this, std::move(journal), recovery.records, MakePods());
  if (recovery.torn_bytes > 0 || recovery.damaged_bytes > 0) metrics_->journal_repairs.Add();
  if (recovery.damaged_bytes > 0 || state_->skipped > 0) {
    Log(Severity::kError, "the journal of grants was damaged; its readable records are in force",
        {{"directory", options_.state_dir},
         {"damage", recovery.damage},
         {"records_skipped", state_->skipped},
         {"bytes_skipped", recovery.damaged_bytes}});
  }
  Log(Severity::kInfo, "read the journal of grants",
      {{"grants", state_->ledger.entries().size()}, {"torn_bytes", recovery.torn_bytes}});
  RETURN_IF_ERROR(MakeDirs(DirName(options_.socket)));
  RETURN_IF_ERROR(state_->server.Listen(options_.socket));
  state_->watcher.Start();
  // On a node without a driver no process uses a GPU, so usage is not read.
  if (options_.nvml != nullptr && options_.on_container_uses) state_->usage.Start();
  return Status::Ok();
}

}  // namespace tessera::agent
