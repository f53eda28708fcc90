// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_report.h"

#include <fmt/ranges.h>

#include <utility>

#include "src/base/log.h"

namespace tessera::agent {
namespace {

std::string WithoutGpusProblem(const std::vector<std::string>& containers) {
  if (containers.empty()) return {};
  const bool single = containers.size() == 1;
  return fmt::format(
      "{}, because the engine did not use tessera-runtime: {}{}. Restart the agent's pod of this "
      "node, which configures the engine, then the {}",
      single ? "1 container runs without its GPUs"
             : fmt::format("{} containers run without their GPUs", containers.size()),
      containers.front(), single ? "" : " and others",
      single ? "container's pod" : "containers' pods");
}

}  // namespace

NodeReporter::NodeReporter(TaskRunner* runner, NodeMetrics* metrics, Sources sources)
    : runner_(runner), metrics_(metrics), sources_(std::move(sources)) {}

void NodeReporter::Start(std::unique_ptr<NodeApi> api, TaintKeys startup_taints) {
  api_ = std::move(api);
  publisher_ = std::make_unique<NodePublisher>(runner_, api_.get(), metrics_, sources_.hardware);
  publisher_->SetStartupTaints(std::move(startup_taints));
  publisher_->SetOnNode(sources_.on_node);
  Publish();
  ScheduleRecheck();
}

void NodeReporter::Publish() {
  if (publisher_ == nullptr) return;
  std::optional<device::NodeInventory> inventory = sources_.inventory();
  if (!inventory) return;
  inventory->runtime_problem = engine_problem_.empty() ? without_gpus_problem_ : engine_problem_;
  publisher_->Publish(*inventory, sources_.findings());
}

void NodeReporter::SetContainersWithoutGpus(const std::vector<std::string>& containers) {
  without_gpus_problem_ = WithoutGpusProblem(containers);
  if (!containers.empty()) {
    Log(Severity::kError, "containers run without their GPUs",
        {{"containers", fmt::format("{}", fmt::join(containers, " "))}});
  }
  Publish();
}

void NodeReporter::OnKubeletRegistered() {
  runner_->PostDelayed(kKubeletRegistrationTime, [this, weak = weak_.Get()] {
    if (weak && publisher_ != nullptr) publisher_->Recheck();
  });
}

void NodeReporter::ScheduleRecheck() {
  runner_->PostDelayed(kCheckInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    publisher_->Recheck();
    ScheduleRecheck();
  });
}

}  // namespace tessera::agent
