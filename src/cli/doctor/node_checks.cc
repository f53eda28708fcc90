// SPDX-License-Identifier: Apache-2.0
// Checks of Node objects: conditions, labels, capacities, and the annotation of the agent.
#include <map>

#include "api/names.h"
#include "src/cli/doctor/checks.h"
#include "src/cli/object_fields.h"
#include "src/cli/output/text.h"
#include "src/device/quantity.h"
#include "src/formats/json.h"

namespace tessera::cli {
namespace {

// The kubelet rejects device lists above 4 MiB, which is about this many device ids.
constexpr int64_t kMaxDeviceIds = 65'000;

std::string NameOfNode(const Json& node) { return TextAt(node, {"metadata", "name"}); }
std::string PlaceOfNode(const Json& node) { return "node " + NameOfNode(node); }
std::string LabelOf(const Json& node, std::string_view label) {
  return TextAt(node, {"metadata", "labels", label});
}

// The amount of a resource in capacity or allocatable; -1 if it is missing.
int64_t AmountOf(const Json& node, std::string_view list, std::string_view resource) {
  const std::string text = TextAt(node, {"status", list, resource});
  return text.empty() ? -1 : device::ParseWholeQuantity(text).value_or(-1);
}

void ReportCondition(const ClusterFacts& facts, std::string_view reason, const char* cause,
                     const char* fix, DoctorFindings* findings) {
  for (const Json& node : *facts.nodes) {
    const Json* condition = ConditionOf(node, names::kConditionGpuReady);
    if (condition == nullptr || IsTrue(condition)) continue;
    if (condition->StringAt("reason").value_or("") != reason) continue;
    findings->Add(PlaceOfNode(node), condition->StringAt("message").value_or(""), cause, fix);
  }
}

void CheckDriver(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportCondition(
      facts, names::kReasonDriverNotReady,
      "the driver is not installed, is built for another kernel, lies elsewhere, or is closed "
      "while it is upgraded",
      "wait while an upgrade goes on; else install the driver for the running kernel, or set "
      "agent.driverRoot of the chart; the agent retries by itself",
      findings);
  ReportCondition(facts, names::kReasonNoGpu, "the driver works and reports no GPU",
                  "check lspci and dmesg on the node", findings);
}

void CheckUnhealthyGpus(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const auto& [node, inventory] : facts.inventories) {
    for (const device::Gpu& gpu : inventory.gpus) {
      if (gpu.health.ok()) continue;
      findings->Add(
          fmt::format("node {}, GPU {} ({})", node, gpu.index, gpu.uuid),
          fmt::format("the GPU is {} and not offered", device::NameOf(gpu.health.state)),
          gpu.health.reason,
          "do what the cause says; the GPU is offered again when its cause ends, or after "
          "nvidia-smi --gpu-reset or a reboot of the node");
    }
  }
}

void CheckSuspectGpus(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const auto& [node, inventory] : facts.inventories) {
    for (const device::Gpu& gpu : inventory.gpus) {
      if (gpu.health.state != device::Health::State::kSuspect) continue;
      findings->AddNote(fmt::format("node {}, GPU {} ({})", node, gpu.index, gpu.uuid),
                        gpu.health.reason, "an application error that the driver reported",
                        "check the program that ran on it; the GPU stays offered");
    }
  }
}

void CheckEngineConfiguration(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportCondition(facts, names::kReasonRuntimeNotConfigured,
                  "another tool or a package upgrade overwrote the configuration of the container "
                  "engine",
                  "delete the agent's pod of the node: its successor configures the engine again; "
                  "or set runtime.repair=true of the chart",
                  findings);
}

void CheckRegistration(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& node : *facts.nodes) {
    const auto inventory = facts.inventories.find(NameOfNode(node));
    if (inventory == facts.inventories.end()) continue;
    int64_t healthy = 0;
    for (const device::Gpu& gpu : inventory->second.gpus) healthy += gpu.health.ok() && !gpu.mig;
    if (healthy == 0 || AmountOf(node, "capacity", names::kResourceGpu) > 0) continue;
    findings->Add(
        PlaceOfNode(node),
        fmt::format("{} healthy GPU{}, and the kubelet offers no {}", healthy,
                    Plural(static_cast<size_t>(healthy)), names::kResourceGpu),
        "the kubelet does not read the agent's device list",
        "check the mount of the kubelet's device-plugins directory in DaemonSet tessera-agent, and "
        "the kubelet's log for "
        "\"device plugin\"");
  }
}

void CheckPresentLabel(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& node : *facts.nodes) {
    if (LabelOf(node, names::kLabelGpuPresent) != "true") continue;
    const auto inventory = facts.inventories.find(NameOfNode(node));
    // Without a driver the agent finds GPUs on the PCI bus, and sets the label. Another check
    // reports the missing driver, from condition GPUReady.
    const bool known = inventory != facts.inventories.end() &&
                       !(inventory->second.gpus.empty() && inventory->second.problem.empty());
    if (known) continue;
    findings->Add(PlaceOfNode(node),
                  fmt::format("label {}=true, and no GPU is known", names::kLabelGpuPresent),
                  "another tool wrote the label, or no agent runs on the node",
                  "check that the DaemonSet tessera-agent tolerates the node's taints; otherwise "
                  "remove the label");
  }
}

void CheckPausedLabels(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& node : *facts.nodes) {
    for (const auto& [name, value] : MembersAt(node, {"metadata", "labels"})) {
      if (!value.is_string() || !value.string_value().starts_with("paused-for-")) continue;
      findings->Add(
          PlaceOfNode(node), fmt::format("label {}={}", name, value.string_value()),
          "a driver upgrade or a MIG change was interrupted and left its label",
          fmt::format(
              "if no upgrade or change is running: kubectl label node {} {}=true --overwrite",
              NameOfNode(node), name));
    }
  }
}

void CheckMigState(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& node : *facts.nodes) {
    const std::string state = LabelOf(node, "nvidia.com/mig.config.state");
    if (state.empty() || state == "success") continue;
    findings->Add(
        PlaceOfNode(node),
        fmt::format("MIG configuration {}: {}", LabelOf(node, "nvidia.com/mig.config"), state),
        "the change failed, waits for pods on the GPU, or needs a reboot",
        "end the pods with GPUs on the node; then set the label nvidia.com/mig.config "
        "again");
  }
}

std::string UpgradeStateOf(const Json& node) { return LabelOf(node, names::kLabelUpgradeState); }

void CheckDriverUpgrade(const ClusterFacts& facts, DoctorFindings* findings) {
  const auto failed = std::ranges::find(*facts.nodes, "upgrade-failed", UpgradeStateOf);
  for (const Json& node : *facts.nodes) {
    const std::string state = UpgradeStateOf(node);
    if (state.empty() || state == "upgrade-done") continue;
    if (state == "upgrade-required" && failed != facts.nodes->end()) {
      findings->AddNote(PlaceOfNode(node), "driver upgrade: upgrade-required",
                        fmt::format("it may wait because the upgrade of node {} has failed",
                                    TextAt(*failed, {"metadata", "name"})),
                        "correct that node first; the plan has the reason: kubectl get tessera "
                        "tessera -o jsonpath='{.status.drivers[*].plan}'");
      continue;
    }
    const bool cordoned = FindPath(node, {"spec", "unschedulable"}) != nullptr;
    findings->Add(
        PlaceOfNode(node), fmt::format("driver upgrade: {}{}", state, cordoned ? "; cordoned" : ""),
        state == "upgrade-failed" ? "the new driver did not become ready"
                                  : "the upgrade has not ended",
        fmt::format("kubectl describe node {0} has the reason; to retry: kubectl annotate "
                    "node {0} {1}=true",
                    TextAt(node, {"metadata", "name"}), names::kAnnotationUpgradeRequested));
  }
}

void CheckMixedDrivers(const ClusterFacts& facts, DoctorFindings* findings) {
  std::map<std::string, std::vector<std::string>> nodes;  // by version
  for (const auto& [node, inventory] : facts.inventories) {
    if (!inventory.driver_version.empty()) nodes[inventory.driver_version].push_back(node);
  }
  if (nodes.size() < 2) return;
  std::string versions;
  for (const auto& [version, names] : nodes) {
    versions += fmt::format("{}{} ({} node{}, {} among them)", versions.empty() ? "" : ", ",
                            version, names.size(), names.size() == 1 ? "" : "s", names[0]);
  }
  findings->AddNote("cluster", "nodes have different drivers: " + versions,
                    "an upgrade under way, or pools that were installed at different times",
                    "a program may need the newer driver: select nodes by label "
                    "nvidia.com/cuda.driver-version.major");
}

void CheckDeviceIds(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& node : *facts.nodes) {
    for (const std::string_view resource :
         {names::kResourceGpuMem, names::kResourceVcudaMemory, names::kResourceVcudaCore}) {
      const int64_t amount = AmountOf(node, "capacity", resource);
      if (amount <= kMaxDeviceIds) continue;
      findings->Add(PlaceOfNode(node), fmt::format("{} units of {}", amount, resource),
                    "a device plugin that counts in MiB: the kubelet rejects lists above 4 MiB",
                    "count in GiB: sharing.memoryUnit=GiB, and remove the other plugin");
    }
  }
}

void CheckNotReadyNodes(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& node : *facts.nodes) {
    if (IsTrue(ConditionOf(node, "Ready")) || !facts.inventories.contains(NameOfNode(node))) {
      continue;
    }
    findings->Add(PlaceOfNode(node), "a node with GPUs is not ready",
                  "the kubelet does not report: the node is down, or restarts",
                  "kubectl describe node " + NameOfNode(node));
  }
}

}  // namespace

std::span<const DoctorCheck> NodeChecks() {
  static constexpr DoctorCheck kChecks[] = {
      {"driver-not-ready", "GPUs missing after a kernel or driver upgrade; pods stuck in Init",
       CheckDriver},
      {"gpu-unhealthy", "a GPU is lost, hangs or reports XIDs, and pods on it fail",
       CheckUnhealthyGpus},
      {"gpu-suspect", "a program gets XIDs, and people ask whether the GPU is broken",
       CheckSuspectGpus},
      {"runtime-not-configured",
       "containers start without GPUs after a tool overwrote containerd's configuration",
       CheckEngineConfiguration},
      {"not-registered", "the node has GPUs, and allocatable is 0 after a kubelet restart",
       CheckRegistration},
      {"label-without-gpu", "a node without GPUs has the label of nodes with GPUs",
       CheckPresentLabel},
      {"paused-labels", "components stay paused after a driver upgrade or a MIG change",
       CheckPausedLabels},
      {"mig-change-stuck", "a MIG change fails or never ends", CheckMigState},
      {"driver-upgrade-stuck", "nodes stay cordoned or in upgrade-required for weeks",
       CheckDriverUpgrade},
      {"mixed-drivers", "a program runs on one node and fails on another with CUDA errors",
       CheckMixedDrivers},
      {"too-many-device-ids", "a large GPU counted in MiB disappears: ResourceExhausted, 4 MiB",
       CheckDeviceIds},
      {"node-not-ready", "pods with GPUs hang on a node that rebooted", CheckNotReadyNodes},
  };
  return kChecks;
}

}  // namespace tessera::cli
