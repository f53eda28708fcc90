// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/readiness.h"

#include <utility>

#include "api/names.h"
#include "src/base/log.h"

namespace tessera::agent {
namespace {

// With two drivers, the driver in use works, so the conflict does not block pods.
bool BlocksPods(const NodeFindings& findings) {
  return !findings.driver_problem.empty() && findings.driver_reason != names::kReasonDriverConflict;
}

}  // namespace

NodeReadiness::NodeReadiness(TaskRunner* runner, ReadinessOptions options)
    : options_(std::move(options)),
      watch_(std::make_shared<DriverWatch>(runner, options_.driver)),
      smoke_test_(runner, options_.expects_kubelet, options_.expects_engine, options_.open_devices,
                  [this](const SmokeVerdict& verdict) { OnVerdict(verdict); }) {
  if (!options_.validations_dir.empty())
    validations_ = std::make_unique<ValidationFiles>(runner, options_.validations_dir);
}

void NodeReadiness::Start() {
  watch_->Start([this] {
    JudgeDriverFiles();
    options_.on_driver_files();
  });
}

void NodeReadiness::SetInventory(std::shared_ptr<const device::NodeInventory> inventory,
                                 bool maintenance) {
  inventory_ = std::move(inventory);
  maintenance_ = maintenance;
  JudgeDriverFiles();
  smoke_test_.SetInventory(inventory_);
  WriteValidations();
}

void NodeReadiness::SetRegistered(bool registered) {
  registered_ = registered;
  smoke_test_.SetRegistered(registered);
  WriteValidations();
}

void NodeReadiness::SetEngineProblem(const std::string& problem) {
  engine_ready_ = problem.empty();
  smoke_test_.SetEngineProblem(problem);
  WriteValidations();
}

std::string NodeReadiness::ReasonToWithhold(const device::NodeInventory& inventory,
                                            bool maintenance) const {
  const NodeFindings findings = Judge(inventory, maintenance);
  if (!BlocksPods(findings)) return "";
  return fmt::format("{}: see the node's condition {}", findings.driver_reason,
                     names::kConditionGpuReady);
}

NodeFindings NodeReadiness::Judge(const device::NodeInventory& inventory, bool maintenance) const {
  NodeFindings findings = findings_;
  DriverFacts facts = watch_->facts();
  facts.gpus_on_bus = options_.gpus_on_bus();
  facts.maintenance = maintenance;
  JudgeDriver(facts, inventory.problem, &findings);
  return findings;
}

void NodeReadiness::JudgeDriverFiles() {
  if (inventory_ == nullptr) return;
  NodeFindings findings = Judge(*inventory_, maintenance_);
  if (findings == findings_) return;
  findings_ = std::move(findings);
  if (!findings_.driver_problem.empty()) {
    Log(Severity::kWarning, "the driver's files have a fault",
        {{"problem", findings_.driver_problem}});
  }
  smoke_test_.SetDriverProblem(BlocksPods(findings_) ? findings_.driver_problem : "");
  options_.on_findings();
}

void NodeReadiness::OnVerdict(const SmokeVerdict& verdict) {
  const bool failed = verdict.state == SmokeVerdict::State::kFailed;
  if (failed) Log(Severity::kWarning, "the smoke test failed", {{"problem", verdict.problem}});
  findings_.smoke_problem = failed ? verdict.problem : "";
  findings_.smoke_passed = verdict.state == SmokeVerdict::State::kPassed;
  options_.on_findings();
}

void NodeReadiness::WriteValidations() {
  if (validations_ == nullptr || inventory_ == nullptr) return;
  ValidationState state;
  const bool usable = inventory_->problem.empty() && !BlocksPods(findings_);
  if (usable && !inventory_->gpus.empty()) state.driver = watch_->root();
  state.dev_root = options_.dev_root;
  state.toolkit_ready = engine_ready_;
  state.plugin_ready = registered_ && inventory_->healthy_count() > 0;
  validations_->Set(state);
}

}  // namespace tessera::agent
