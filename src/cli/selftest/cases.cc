// SPDX-License-Identifier: Apache-2.0
#include "src/cli/selftest/cases.h"

#include <algorithm>
#include <set>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/cli/object_fields.h"
#include "src/device/assignment.h"
#include "src/device/node_annotation.h"
#include "src/device/quantity.h"

namespace tessera::cli {
namespace {

std::vector<std::string> AssignedGpus(const Json& pod) {
  std::vector<std::string> uuids;
  const auto assignment = device::DecodeAssignment(
      TextAt(pod, {"metadata", "annotations", names::kAnnotationAssignment}));
  if (!assignment.ok()) return uuids;
  for (const auto& [container, shares] : assignment->containers) {
    for (const device::DeviceShare& share : shares) uuids.push_back(share.uuid);
  }
  return uuids;
}

// Each GPU that was assigned, and no other, appears in the program's output.
std::string JudgeVisibleGpus(const CaseResult& result) {
  const std::vector<std::string> assigned = AssignedGpus(result.pod);
  if (assigned.empty()) return "no assignment names the pod's GPUs";
  for (const std::string& uuid : assigned) {
    if (result.log.find(uuid) == std::string::npos) {
      return fmt::format("the program did not see {}, which was assigned", uuid);
    }
  }
  const size_t seen_gpus = [&] {
    std::set<std::string> found;
    for (size_t at = result.log.find("GPU-"); at != std::string::npos;
         at = result.log.find("GPU-", at + 4)) {
      found.insert(result.log.substr(at, 40));
    }
    return found.size();
  }();
  if (seen_gpus <= assigned.size()) return "";
  return fmt::format("the program saw {} GPUs, and {} were assigned", seen_gpus, assigned.size());
}

// The two GPUs have an NVLink if any two GPUs of the node have an NVLink.
std::string JudgeLinkedPair(const CaseResult& result) {
  std::string failure = JudgeVisibleGpus(result);
  if (!failure.empty()) return failure;
  const std::vector<std::string> assigned = AssignedGpus(result.pod);
  if (assigned.size() != 2) return fmt::format("{} GPUs were assigned", assigned.size());
  const auto inventory = device::DecodeNodeInventory(
      TextAt(result.node, {"metadata", "annotations", names::kAnnotationDevices}));
  if (!inventory.ok()) return "annotation tessera.dev/devices of the node cannot be read";
  const auto position = [&](const std::string& uuid) {
    return static_cast<size_t>(std::ranges::find(inventory->gpus, uuid, &device::Gpu::uuid) -
                               inventory->gpus.begin());
  };
  const size_t a = position(assigned[0]), b = position(assigned[1]), n = inventory->gpus.size();
  if (a >= n || b >= n) return "the node does not have the GPUs that were assigned";
  if (inventory->links.size() != n || inventory->links.At(a, b).nvlinks > 0) return "";
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (inventory->links.At(i, j).nvlinks == 0) continue;
      return fmt::format("{} and {} have no NVLink, and other GPUs of the node have one",
                         assigned[0], assigned[1]);
    }
  }
  return "";
}

std::string JudgeMemoryLimit(const CaseResult& result) {
  if (result.log.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos) return "";
  return "the allocation beyond the share did not end with CUDA_ERROR_OUT_OF_MEMORY";
}

// For a case that is decided by the exit code alone, which Judge checks.
std::string JudgeByExitCode(const CaseResult&) { return ""; }

constexpr TestCase kCases[] = {
    {.name = "whole-gpu",
     .purpose = "a whole GPU",
     .resource = names::kResourceGpu,
     .amount = 1,
     .judge = JudgeVisibleGpus},
    {.name = "share",
     .purpose = "a share of a GPU",
     .resource = names::kResourceGpuMem,
     .amount = 1,
     .judge = JudgeVisibleGpus},
    {.name = "linked-pair",
     .purpose = "two GPUs, joined by NVLink if the node has such a pair",
     .resource = names::kResourceGpu,
     .amount = 2,
     .judge = JudgeLinkedPair},
    {.name = "memory-limit",
     .purpose = "no more device memory than the share",
     .resource = names::kResourceGpuMem,
     .amount = 1,
     .args = {"--bytes", "3221225472"},
     .must_fail = true,
     .judge = JudgeMemoryLimit},
    {.name = "default-deny",
     .purpose = "no GPU without a request",
     .args = {"--expect-none"},
     .judge = JudgeByExitCode},
};

// The last lines of a log, in one line.
std::string TailOf(std::string_view log) {
  std::string tail;
  const std::vector<std::string_view> lines = Split(Trim(log), '\n');
  for (size_t i = lines.size() > 3 ? lines.size() - 3 : 0; i < lines.size(); ++i) {
    tail += fmt::format("{}{}", tail.empty() ? "" : " | ", Trim(lines[i]));
  }
  return TruncateUtf8(std::move(tail), 400);
}

}  // namespace

std::span<const TestCase> TestCases() { return kCases; }

std::string TestCaseNames() {
  std::vector<std::string_view> names;
  for (const TestCase& test : kCases) names.emplace_back(test.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string ReasonToSkip(const TestCase& test, const std::vector<Json>& nodes) {
  if (test.resource.empty()) return "";
  for (const Json& node : nodes) {
    const std::string text = TextAt(node, {"status", "allocatable", test.resource});
    if (device::ParseWholeQuantity(text).value_or(0) >= test.amount) return "";
  }
  return fmt::format("no node offers {} of {}", test.amount, test.resource);
}

Json PodOfCase(const TestCase& test, const std::string& ns, const std::string& image,
               const std::string& pull_policy, std::chrono::seconds deadline) {
  Json args = Json::MakeArray();
  for (const char* arg : test.args) {
    if (arg != nullptr) args.Append(Json::String(arg));
  }
  Json limits = Json::MakeObject();
  if (!test.resource.empty()) limits.Set(test.resource, Json::Int(test.amount));
  Json container = Json::MakeObject(
      {{"name", Json::String("main")},
       {"image", Json::String(image)},
       {"imagePullPolicy", Json::String(pull_policy)},
       {"args", std::move(args)},
       {"env", Json::MakeArray()},
       {"resources", Json::MakeObject({{"limits", std::move(limits)}})},
       {"securityContext",
        ParseJson(R"({"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}})")
            .value()}});
  if (test.resource.empty()) {
    // A pod without a request must get no GPU, even with this variable.
    container.Set(
        "env", Json::MakeArray({Json::MakeObject({{"name", Json::String(names::kEnvVisibleDevices)},
                                                  {"value", Json::String("all")}})}));
  }
  Json labels = Json::MakeObject({{"app.kubernetes.io/name", Json::String(kTestName)},
                                  {"app.kubernetes.io/component", Json::String(test.name)}});
  return Json::MakeObject(
      {{"apiVersion", Json::String("v1")},
       {"kind", Json::String("Pod")},
       {"metadata", Json::MakeObject({{"name", Json::String(test.name)},
                                      {"namespace", Json::String(ns)},
                                      {"labels", std::move(labels)}})},
       {"spec", Json::MakeObject({{"restartPolicy", Json::String("Never")},
                                  {"terminationGracePeriodSeconds", Json::Int(1)},
                                  {"activeDeadlineSeconds", Json::Int(deadline.count())},
                                  {"automountServiceAccountToken", Json::Bool(false)},
                                  {"containers", Json::MakeArray({std::move(container)})}})}});
}

std::string ReasonOfWait(const Json& pod) {
  for (const Json& container : ItemsAt(pod, {"status", "containerStatuses"})) {
    const std::string reason = TextAt(container, {"state", "waiting", "reason"});
    if (reason.empty() || reason == "ContainerCreating") continue;
    return fmt::format("{}: {}", reason, TextAt(container, {"state", "waiting", "message"}));
  }
  const Json* scheduled = ConditionOf(pod, "PodScheduled");
  if (scheduled != nullptr && !IsTrue(scheduled)) {
    return "not scheduled: " + scheduled->StringAt("message").value_or("");
  }
  if (scheduled == nullptr) return "kube-scheduler has not tried to place it";
  return "its container does not end";
}

std::string Judge(const TestCase& test, const CaseResult& result) {
  const std::string phase = TextAt(result.pod, {"status", "phase"});
  std::string message = TextAt(result.pod, {"status", "message"});
  for (const Json& container : ItemsAt(result.pod, {"status", "containerStatuses"})) {
    const std::string reason = TextAt(container, {"state", "terminated", "reason"});
    if (reason == "StartError" || reason == "ContainerCannotRun") {
      return fmt::format("{}: {}", reason, TextAt(container, {"state", "terminated", "message"}));
    }
  }
  if (phase == "Failed" && !message.empty()) {
    return fmt::format("{}: {}", TextAt(result.pod, {"status", "reason"}), message);
  }
  if (test.must_fail != (phase == "Failed")) {
    return fmt::format("the program {}; its log ends with: {}",
                       test.must_fail ? "succeeded, and should have been stopped" : "failed",
                       TailOf(result.log));
  }
  std::string failure = test.judge(result);
  if (!failure.empty()) failure += fmt::format("; its log ends with: {}", TailOf(result.log));
  return failure;
}

}  // namespace tessera::cli
