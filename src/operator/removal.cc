// SPDX-License-Identifier: Apache-2.0
#include "src/operator/removal.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/components/agent_written_fields.h"
#include "src/kube/client.h"

namespace tessera::operators {
namespace {

// Time from the start of a step to the first check whether it is complete.
constexpr Duration kFirstCheckWait = std::chrono::seconds(1);
constexpr Duration kRetry = std::chrono::seconds(5);
// Whole Node objects are listed, at tens of KiB each.
constexpr int kCleanerPageSize = 100;

}  // namespace

// Removes tessera-runtime from the container engines' configurations: runs DaemonSets on the nodes
// that had agents, waits until all of their pods are ready, and deletes the DaemonSets. Runs after
// the last agent has ended, because an agent's pod would configure the engine again.
class EngineCleanup : private ObjectSet::Delegate {
 public:
  // DEADLINE_EXCEEDED says which DaemonSet is not ready; other errors come from the deletion.
  using OnDone = std::function<void(const Status& status)>;

  // Starts at once. Calls `on_done` once, posted to the runner, after at most `timeout` and some
  // requests. `daemonsets`: from components::RenderCleanup.
  EngineCleanup(ClusterAccess access, kube::TypeCatalog& types, std::vector<Json> daemonsets,
                Duration timeout, OnDone on_done);

 private:
  void OnObjectsChanged() override;
  void OnRepair(const std::string&, const std::string&) override {}
  void End(const Status& status);
  void DeleteNext();

  const ClusterAccess access_;
  const OnDone on_done_;
  std::vector<kube::ObjectRef> to_delete_;
  bool ended_ = false;
  Status result_;
  kube::Operation deletion_;
  ObjectSet set_;
  WeakPtrFactory<EngineCleanup> weak_{this};
};

EngineCleanup::EngineCleanup(ClusterAccess access, kube::TypeCatalog& types,
                             std::vector<Json> daemonsets, Duration timeout, OnDone on_done)
    : access_(std::move(access)),
      on_done_(std::move(on_done)),
      set_(access_.client, types, {.before_send = access_.before_send}, access_.metrics,
           static_cast<ObjectSet::Delegate&>(*this)) {
  for (const Json& set : daemonsets) {
    const Json& metadata = *set.Find("metadata");
    to_delete_.push_back({kube::kDaemonSets, metadata.StringAt("name").value(),
                          metadata.StringAt("namespace").value(), ""});
  }
  // The cleanup DaemonSets get no owner, so that the removal of the owner's objects does not delete
  // them.
  set_.SetWanted({{"cleanup", std::move(daemonsets)}}, {});
  access_.client.runner().PostDelayed(timeout, [this, weak = weak_.Get()] {
    if (!weak || ended_) return;
    End(Error(Code::kDeadlineExceeded, "{}", set_.Reports().front().message));
  });
}

void EngineCleanup::OnObjectsChanged() {
  const std::vector<ComponentReport> reports = set_.Reports();
  const bool ready = std::ranges::all_of(reports, [](const ComponentReport& report) {
    return report.state == ComponentState::kReady;
  });
  if (ended_ || reports.empty() || !ready) return;
  End(Status::Ok());
}

void EngineCleanup::End(const Status& status) {
  ended_ = true;
  result_ = status;
  // Without this call the ObjectSet would restore the deleted objects.
  set_.SetWanted({}, {});
  DeleteNext();
}

void EngineCleanup::DeleteNext() {
  const Status may_write = access_.before_send ? access_.before_send() : Status::Ok();
  if (to_delete_.empty() || !may_write.ok()) {
    access_.client.runner().Post([this, weak = weak_.Get()] {
      if (weak) on_done_(result_);
    });
    return;
  }
  const kube::ObjectRef ref = to_delete_.back();
  to_delete_.pop_back();
  deletion_ = access_.client.Delete(
      ref, {.propagation = kube::kBackgroundDeletion}, [this, ref](const Result<Json>& answer) {
        const bool gone = answer.ok() || answer.status().code() == Code::kNotFound;
        if (!gone && result_.ok()) result_ = answer.status().Annotate("DaemonSet " + ref.name);
        DeleteNext();
      });
}

// Removes the labels, annotations and conditions that agents have written on Nodes
// (components/agent_written_fields.h). Runs after the last agent has ended, because a running agent
// would write them again. Cost: lists the nodes in pages, and patches the nodes with such fields
// one after the other.
class NodeCleaner {
 public:
  using OnDone = std::function<void(const Status& status, size_t cleaned)>;

  // Starts at once. Calls `on_done` once, after the constructor has returned. An error names the
  // first node that failed; the other nodes are cleaned nevertheless.
  NodeCleaner(kube::Client& client, kube::BeforeSend before_send, OnDone on_done)
      : client_(client), before_send_(std::move(before_send)), on_done_(std::move(on_done)) {
    ListNextPage();
  }
  ~NodeCleaner() {
    on_done_ = nullptr;
    operation_.Cancel();
  }

 private:
  struct Write {
    kube::ObjectRef node;
    kube::PatchKind kind;
    Json patch;
  };

  void ListNextPage();
  void Plan(const Json& node);
  void WriteNext();
  void Finish(const Status& status) {
    if (const auto done = std::exchange(on_done_, nullptr)) done(status, cleaned_);
  }

  kube::Client& client_;
  const kube::BeforeSend before_send_;
  OnDone on_done_;
  kube::ListQuery query_{.type = kube::kNodes, .limit = kCleanerPageSize};
  std::deque<Write> writes_;
  size_t cleaned_ = 0;
  Status error_;
  kube::Operation operation_;
};

void NodeCleaner::ListNextPage() {
  operation_ = client_.List(query_, [this](const Result<kube::ListPage>& page) {
    if (!page.ok()) return Finish(page.status());
    for (const kube::RawObject& node : page->items) {
      if (node.json() != nullptr) Plan(*node.json());
    }
    query_.continue_token = page->continue_token;
    WriteNext();
  });
}

void NodeCleaner::Plan(const Json& node) {
  const std::string name = TextAt(node, {"metadata", "name"});
  const components::AgentWrittenFields fields = components::AgentWrittenFieldsOf(node);
  auto metadata = components::NodeCleanupPatch(fields);
  auto status = components::NodeStatusCleanupPatch(fields);
  if (metadata) writes_.push_back({kube::Node(name), kube::PatchKind::kMerge, *metadata});
  if (status) {
    writes_.push_back({kube::NodeStatus(name), kube::PatchKind::kStrategicMerge, *status});
  }
  if (metadata || status) ++cleaned_;
}

void NodeCleaner::WriteNext() {
  if (writes_.empty()) {
    if (query_.continue_token.empty()) return Finish(error_);
    return ListNextPage();
  }
  const Write write = std::move(writes_.front());
  writes_.pop_front();
  operation_ =
      client_.Patch(write.node, write.kind, write.patch,
                    {.field_manager = std::string(names::kOperator), .before_send = before_send_},
                    [this, name = write.node.name](const Result<Json>& answer) {
                      const bool gone = answer.status().code() == Code::kNotFound;
                      if (!answer.ok() && !gone && error_.ok())
                        error_ = answer.status().Annotate("node " + name);
                      WriteNext();
                    });
}

Removal::Removal(Parts parts, Inputs inputs, Duration timeout)
    : parts_(std::move(parts)), inputs_(std::move(inputs)), timeout_(timeout) {}

Removal::~Removal() = default;

bool Removal::Advance(bool agents_run) {
  if (std::string why = ReleaseDrivers(); !why.empty()) {
    Enter(std::move(why));
    return false;
  }
  const bool workloads = parts_.objects.Remaining(/*workloads_only=*/true) > 0 || agents_run;
  if (!engines_clean_ && engine_cleanup_ == nullptr && (workloads || !workload_removal_started_)) {
    workload_removal_started_ = true;
    Enter("the agents and schedulers are being removed; running pods keep their GPUs");
    parts_.objects.RemoveWorkloads(inputs_.owner);
    return false;
  }
  if (!engines_clean_) {
    CleanEngines();
    return false;
  }
  if (!nodes_clean_) {
    CleanNodes();
    return false;
  }
  if (parts_.objects.Remaining(/*workloads_only=*/false) > 0) {
    Enter("the remaining objects are being removed");
    parts_.objects.RemoveAll(inputs_.owner);
    return false;
  }
  if (deleted_count_ < inputs_.created_at_run_time.size()) {
    DeleteCreatedAtRunTime();
    return false;
  }
  Enter("done");
  return true;
}

// Ends the upgrades of all nodes and removes their drivers. Returns why this is not complete yet;
// "" once it is complete.
std::string Removal::ReleaseDrivers() {
  if (parts_.drivers == nullptr || parts_.drivers->released()) return "";
  if (!std::exchange(driver_release_started_, true)) parts_.drivers->Release(inputs_.pools);
  const std::optional<FleetReport> report = parts_.drivers->report();
  if (report && !report->access_error.empty()) return report->access_error;
  if (!report || report->problems.empty()) {
    return "driver upgrades are being ended, and drivers removed from the nodes";
  }
  const NodeProblem& first = report->problems.front();
  return fmt::format("node {}: {}", first.node, first.message);
}

void Removal::CleanEngines() {
  Enter("tessera-runtime is being taken out of the engines' configurations on the nodes");
  if (engine_cleanup_ != nullptr) return;
  if (inputs_.cleanup.empty()) return OnEnginesCleaned(Status::Ok());
  engine_cleanup_ =
      std::make_unique<EngineCleanup>(parts_.access, parts_.types, inputs_.cleanup, timeout_,
                                      [this](const Status& status) { OnEnginesCleaned(status); });
}

// The removal continues after an error; otherwise an unreachable node would block the removal
// forever.
void Removal::OnEnginesCleaned(const Status& status) {
  engines_clean_ = true;
  // Posted, because the cleanup must not be destroyed inside its callback.
  parts_.access.client.runner().Post([this, weak = weak_.Get()] {
    if (weak) engine_cleanup_.reset();
  });
  if (!status.ok()) {
    parts_.on_warning(fmt::format(
        "tessera-runtime may still be in the engine's configuration of some nodes: {}: run "
        "\"tessera-runtime configure --undo\" there",
        status.message()));
  }
  parts_.on_progress(Duration::zero());
}

void Removal::CleanNodes() {
  Enter("labels, annotations and conditions are being removed from the nodes");
  if (cleaner_ != nullptr) return;
  cleaner_ = std::make_unique<NodeCleaner>(
      parts_.access.client, parts_.access.before_send,
      [this](const Status& status, size_t cleaned) {
        // Posted, because the cleaner must not be destroyed inside its callback.
        parts_.access.client.runner().Post([this, weak = weak_.Get(), status, cleaned] {
          if (weak) OnNodesCleaned(status, cleaned);
        });
      });
}

void Removal::OnNodesCleaned(const Status& status, size_t cleaned) {
  cleaner_.reset();
  error_ = status.Annotate("cannot clean the nodes");
  nodes_clean_ = status.ok();
  if (nodes_clean_) Log(Severity::kInfo, "cleaned the nodes", {{"nodes", cleaned}});
  parts_.on_progress(nodes_clean_ ? Duration::zero() : kRetry);
}

void Removal::DeleteCreatedAtRunTime() {
  Enter("the Lease and the EndpointSlice of the schedulers are being removed");
  const kube::BeforeSend& before_send = parts_.access.before_send;
  if (deletion_in_flight_ || (before_send && !before_send().ok())) return;
  deletion_in_flight_ = true;
  const kube::ObjectRef& object = inputs_.created_at_run_time[deleted_count_];
  deletion_ = parts_.access.client.Delete(
      object, {.propagation = kube::kBackgroundDeletion}, [this](const Result<Json>& answer) {
        deletion_in_flight_ = false;
        const bool gone = answer.ok() || answer.status().code() == Code::kNotFound;
        error_ = gone ? Status::Ok()
                      : answer.status().Annotate(
                            "cannot delete the Lease and the EndpointSlice of the schedulers");
        deleted_count_ += gone ? 1 : 0;
        parts_.on_progress(gone ? Duration::zero() : kRetry);
      });
}

void Removal::Enter(std::string step) {
  if (step_ == step) return;
  Log(Severity::kInfo, "removing Tessera from the cluster", {{"step", step}});
  step_ = std::move(step);
  parts_.on_progress(kFirstCheckWait);
}

}  // namespace tessera::operators
