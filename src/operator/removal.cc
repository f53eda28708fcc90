// SPDX-License-Identifier: Apache-2.0
#include "src/operator/removal.h"

#include <utility>

#include "src/base/log.h"

namespace tessera::operators {
namespace {

// Time from the start of a step to the first check whether it is complete.
constexpr Duration kFirstCheckWait = std::chrono::seconds(1);
constexpr Duration kRetry = std::chrono::seconds(5);

}  // namespace

Removal::Removal(Parts parts, Inputs inputs, Duration timeout)
    : parts_(std::move(parts)), inputs_(std::move(inputs)), timeout_(timeout) {}

bool Removal::Advance(bool agents_run) {
  if (std::string why = ReleaseDrivers(); !why.empty()) {
    Enter(std::move(why));
    return false;
  }
  const bool workloads = parts_.objects.Remaining(/*workloads_only=*/true) > 0 || agents_run;
  if (!engines_clean_ && engine_cleanup_ == nullptr && (workloads || !removing_)) {
    removing_ = true;
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
  if (!std::exchange(releasing_, true)) parts_.drivers->Release(inputs_.pools);
  const std::optional<FleetReport> report = parts_.drivers->report();
  if (report && !report->access_error.empty()) return report->access_error;
  if (!report || report->problems.empty()) {
    return "the nodes are being released from upgrades and drivers";
  }
  const driver::FleetProblem& first = report->problems.front();
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

// The deletion continues after an error, because an unreachable node would block it forever.
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
      object, {.propagation = kube::Propagation::kBackground}, [this](const Result<Json>& answer) {
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
