// SPDX-License-Identifier: Apache-2.0
#include "src/operator/removal.h"

#include <utility>

#include "src/base/log.h"

namespace tessera::operators {
namespace {

// After a step begins; what it waits for mostly takes longer.
constexpr Duration kLookAgain = std::chrono::seconds(1);
constexpr Duration kRetry = std::chrono::seconds(5);

}  // namespace

Removal::Removal(Context context, Wanted wanted, Duration patience)
    : context_(std::move(context)), wanted_(std::move(wanted)), patience_(patience) {}

bool Removal::Advance(bool agents_run) {
  if (std::string why = WhyDriversStay(); !why.empty()) {
    Enter(std::move(why));
    return false;
  }
  const bool workloads = context_.objects.Remaining(true) > 0 || agents_run;
  if (!engines_clean_ && engine_cleanup_ == nullptr && (workloads || !removing_)) {
    removing_ = true;
    Enter("the agents and schedulers are being removed; running pods keep their GPUs");
    context_.objects.Remove(wanted_.owner, false);
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
  if (context_.objects.Remaining(false) > 0) {
    Enter("the remaining objects are being removed");
    context_.objects.Remove(wanted_.owner, true);
    return false;
  }
  Enter("done");
  return true;
}

// The nodes end their upgrades and lose their drivers. Returns what that waits for; "": nothing.
std::string Removal::WhyDriversStay() {
  if (context_.drivers == nullptr || context_.drivers->released()) return "";
  if (!std::exchange(releasing_, true)) context_.drivers->Release(wanted_.pools);
  const std::optional<FleetReport> report = context_.drivers->report();
  if (report && !report->unseen.empty()) return report->unseen;
  if (!report || report->problems.empty()) {
    return "the nodes are being released from upgrades and drivers";
  }
  const driver::FleetProblem& first = report->problems.front();
  return fmt::format("node {}: {}", first.node, first.message);
}

void Removal::CleanEngines() {
  Enter("tessera-runtime is being taken out of the engines' configurations on the nodes");
  if (engine_cleanup_ != nullptr) return;
  if (wanted_.cleanup.empty()) return OnEnginesCleaned(Status::Ok());
  engine_cleanup_ =
      std::make_unique<EngineCleanup>(context_.cleanup, wanted_.cleanup, patience_,
                                      [this](const Status& status) { OnEnginesCleaned(status); });
}

// The deletion goes on after an error, because a node that is away would hold it for good.
void Removal::OnEnginesCleaned(const Status& status) {
  engines_clean_ = true;
  // Not inside its call.
  context_.cleanup.client.runner().Post([this, weak = weak_.Get()] {
    if (weak) engine_cleanup_.reset();
  });
  if (!status.ok()) {
    context_.on_warning(fmt::format(
        "tessera-runtime may still be in the engine's configuration of some nodes: {}: run "
        "\"tessera-runtime configure --undo\" there",
        status.message()));
  }
  context_.on_progress(Duration::zero());
}

void Removal::CleanNodes() {
  Enter("labels, annotations and conditions are being removed from the nodes");
  if (cleaner_ != nullptr) return;
  cleaner_ = std::make_unique<NodeCleaner>(
      context_.cleanup.client, context_.cleanup.before_send,
      [this](const Status& status, size_t cleaned) {
        // Not inside the cleaner's call.
        context_.cleanup.client.runner().Post([this, weak = weak_.Get(), status, cleaned] {
          if (weak) OnNodesCleaned(status, cleaned);
        });
      });
}

void Removal::OnNodesCleaned(const Status& status, size_t cleaned) {
  cleaner_.reset();
  error_ = status;
  nodes_clean_ = status.ok();
  if (nodes_clean_) Log(Severity::kInfo, "cleaned the nodes", {{"nodes", cleaned}});
  context_.on_progress(nodes_clean_ ? Duration::zero() : kRetry);
}

void Removal::Enter(std::string step) {
  if (step_ == step) return;
  Log(Severity::kInfo, "the resource is being deleted", {{"step", step}});
  step_ = std::move(step);
  context_.on_progress(kLookAgain);
}

}  // namespace tessera::operators
