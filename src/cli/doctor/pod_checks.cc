// SPDX-License-Identifier: Apache-2.0
// Checks of pods with GPUs: assignments, failures, waits.
#include <map>
#include <set>

#include "api/names.h"
#include "src/cli/doctor/checks.h"
#include "src/cli/gpu_pods.h"
#include "src/cli/object_fields.h"
#include "src/cli/output/text.h"
#include "src/cli/selftest/cases.h"
#include "src/ledger/pod_request.h"

namespace tessera::cli {
namespace {

// If a node has at least this number of failed pods, the node is the likely cause.
constexpr size_t kManyFailedPods = 20;

std::string PhaseOf(const Json& pod) { return TextAt(pod, {"status", "phase"}); }
std::string PlaceOfPod(const Json& pod) { return "pod " + NameOfPod(pod); }

void CheckAdmissionErrors(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& pod : *facts.pods) {
    if (TextAt(pod, {"status", "reason"}) != "UnexpectedAdmissionError") continue;
    findings->Add(
        PlaceOfPod(pod), "UnexpectedAdmissionError: " + TextAt(pod, {"status", "message"}),
        "the node restarted, and the kubelet admitted the pod before the GPUs were "
        "offered",
        fmt::format("kubectl -n {} delete pod {}: its controller makes a new one",
                    TextAt(pod, {"metadata", "namespace"}), TextAt(pod, {"metadata", "name"})));
  }
}

void CheckFailedPods(const ClusterFacts& facts, DoctorFindings* findings) {
  std::map<std::string, size_t> failed;  // by node
  for (const Json& pod : *facts.pods) {
    if (PhaseOf(pod) == "Failed" && ledger::RequestsGpus(pod))
      ++failed[TextAt(pod, {"spec", "nodeName"})];
  }
  for (const auto& [node, count] : failed) {
    if (count < kManyFailedPods || node.empty()) continue;
    findings->Add(
        "node " + node, fmt::format("{} failed pods with GPUs", count),
        "a node that accepts pods and cannot run them",
        fmt::format("kubectl cordon {}; then tessera status, and the pods' Events", node));
  }
}

void CheckUnassignedPods(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& pod : *facts.pods) {
    if (PhaseOf(pod) != "Running" || !ledger::RequestsGpus(pod)) continue;
    if (!facts.inventories.contains(TextAt(pod, {"spec", "nodeName"}))) continue;
    if (!TextAt(pod, {"metadata", "annotations", names::kAnnotationAssignment}).empty()) continue;
    findings->Add(PlaceOfPod(pod), "the pod runs, but no assignment names its GPUs",
                  "the pod bypassed the scheduler and the agent has not written its GPUs yet, or "
                  "another device plugin gave the GPUs",
                  "check the agent of node " + TextAt(pod, {"spec", "nodeName"}));
  }
}

void CheckGoneGpus(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const auto& [pod, assignment] : facts.assignments) {
    const auto inventory = facts.inventories.find(TextAt(*pod, {"spec", "nodeName"}));
    if (inventory == facts.inventories.end()) continue;
    std::set<std::string> known;
    for (const device::Gpu& gpu : inventory->second.gpus) {
      known.insert(gpu.uuid);
      if (gpu.mig) {
        for (const device::MigSlice& slice : *gpu.mig) known.insert(slice.uuid);
      }
    }
    for (const auto& [container, shares] : assignment.containers) {
      for (const device::DeviceShare& share : shares) {
        if (known.contains(share.uuid)) continue;
        findings->Add(PlaceOfPod(*pod),
                      fmt::format("container {} holds {}, which node {} does not "
                                  "have",
                                  container, share.uuid, inventory->first),
                      "the GPU was lost or replaced, or its MIG slices were created again",
                      "delete the pod; check the node's dmesg");
      }
    }
  }
}

void CheckOversold(const ClusterFacts& facts, DoctorFindings* findings) {
  struct HeldAmounts {
    int64_t milli = 0, bytes = 0;
  };
  std::map<std::pair<std::string, std::string>, HeldAmounts> held;  // by node and UUID
  for (const auto& [pod, assignment] : facts.assignments) {
    for (const auto& [container, shares] : assignment.containers) {
      for (const device::DeviceShare& share : shares) {
        HeldAmounts& amounts = held[{TextAt(*pod, {"spec", "nodeName"}), share.uuid}];
        amounts.milli += share.compute.count();
        amounts.bytes += share.memory.count();
      }
    }
  }
  for (const auto& [node, inventory] : facts.inventories) {
    for (const device::Gpu& gpu : inventory.gpus) {
      const auto found = held.find({node, gpu.uuid});
      if (found == held.end() ||
          (found->second.milli <= kWholeGpu.count() && found->second.bytes <= gpu.memory.count())) {
        continue;
      }
      findings->Add(
          fmt::format("node {}, GPU {}", node, gpu.uuid),
          fmt::format(
              "pods hold {} of this GPU's compute and {} of its {} memory, more than it has",
              GpuCountText(found->second.milli), MemoryText(Bytes(found->second.bytes)),
              MemoryText(gpu.memory)),
          "pods bypassed the scheduler, or two systems assign one GPU",
          "keep one system: tessera migrate --dry-run says how; the scheduler's repair evicts the "
          "newer pod");
    }
  }
}

void CheckStartErrors(const ClusterFacts& facts, DoctorFindings* findings) {
  static const std::set<std::string> kReasons{"RunContainerError", "CreateContainerError",
                                              "StartError", "ContainerCannotRun"};
  for (const Json& pod : *facts.pods) {
    if (!ledger::RequestsGpus(pod)) continue;
    for (const Json& container : ItemsAt(pod, {"status", "containerStatuses"})) {
      for (const char* state : {"waiting", "terminated"}) {
        const std::string reason = TextAt(container, {"state", state, "reason"});
        if (!kReasons.contains(reason)) continue;
        findings->Add(
            fmt::format("{}, container {}", PlaceOfPod(pod),
                        container.StringAt("name").value_or("")),
            reason, TextAt(container, {"state", state, "message"}),
            fmt::format("follow the message; kubectl -n {} describe pod {} has all of its "
                        "Events",
                        TextAt(pod, {"metadata", "namespace"}), TextAt(pod, {"metadata", "name"})));
      }
    }
  }
}

void CheckVisibleDevices(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& pod : *facts.pods) {
    if (PhaseOf(pod) != "Running" || ledger::RequestsGpus(pod)) continue;
    for (const Json& container : ItemsAt(pod, {"spec", "containers"})) {
      for (const Json& variable : ItemsAt(container, {"env"})) {
        const std::string value = variable.StringAt("value").value_or("");
        if (variable.StringAt("name").value_or("") != names::kEnvVisibleDevices || value.empty() ||
            value == "void" || value == "none") {
          continue;
        }
        findings->AddNote(
            fmt::format("{}, container {}", PlaceOfPod(pod),
                        container.StringAt("name").value_or("")),
            fmt::format("{} is set, and the pod requests no GPU", names::kEnvVisibleDevices),
            "the variable grants nothing: GPUs are given by request",
            "request nvidia.com/gpu or a share, or remove the variable");
      }
    }
  }
}

void CheckWaitingPods(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& pod : *facts.pods) {
    if (PhaseOf(pod) != "Pending" || !ledger::RequestsGpus(pod)) continue;
    const Json* scheduled = ConditionOf(pod, "PodScheduled");
    if (scheduled == nullptr || IsTrue(scheduled)) continue;
    findings->AddNote(
        PlaceOfPod(pod), "it waits for GPUs", scheduled->StringAt("message").value_or(""),
        fmt::format("tessera explain {} says what is missing, GPU by GPU", NameOfPod(pod)));
  }
}

// A killed `tessera test` leaves its namespace, in which the pods end by themselves.
void CheckTestPods(const ClusterFacts& facts, DoctorFindings* findings) {
  std::map<std::string, std::string> pods_left;  // names of pods by namespace
  for (const Json& pod : *facts.pods) {
    const std::string ns = TextAt(pod, {"metadata", "namespace"});
    const bool is_test_pod = TextAt(pod, {"metadata", "labels", kNameLabel}) == kTestName;
    if (!is_test_pod || !ns.starts_with(kTestName))
      continue;  // the fix deletes the whole namespace
    std::string& names = pods_left[ns];
    names += fmt::format("{}{}", names.empty() ? "" : ", ", TextAt(pod, {"metadata", "name"}));
  }
  for (const auto& [ns, names] : pods_left) {
    findings->AddNote("namespace " + ns, "pods of tessera test: " + names,
                      "a tessera test runs now, was started with --keep, or was killed",
                      fmt::format("if none runs now: kubectl delete namespace {}", ns));
  }
}

}  // namespace

std::span<const DoctorCheck> PodChecks() {
  static constexpr DoctorCheck kChecks[] = {
      {"admission-errors", "pods stay in UnexpectedAdmissionError after a reboot",
       CheckAdmissionErrors},
      {"failed-pods-pile-up", "a node without working GPUs swallows thousands of pods",
       CheckFailedPods},
      {"unassigned-pods", "it is unknown which GPU a pod has", CheckUnassignedPods},
      {"assigned-gpu-gone", "a running pod lost its GPU", CheckGoneGpus},
      {"gpu-oversold", "a GPU is given to more pods than fit", CheckOversold},
      {"start-errors", "containers do not start, with a message of the runtime", CheckStartErrors},
      {"visible-devices-without-request",
       "an image names all GPUs, but its container sees none (without Tessera: all)",
       CheckVisibleDevices},
      {"test-left", "pods of a test stay, and may hold GPUs", CheckTestPods},
      {"waiting-pods", "pods stay Pending, and GPUs look free", CheckWaitingPods},
  };
  return kChecks;
}

}  // namespace tessera::cli
