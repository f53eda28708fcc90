// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/limit_changes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/agent/grant_description.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/device/memory_limit.h"

namespace tessera::agent {
namespace {

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string TextOf(const PodInfo& pod) {
  const auto found = pod.annotations.find(names::kAnnotationMemoryLimit);
  return found == pod.annotations.end() ? "" : found->second;
}

bool IsUuid(const std::string& text) {
  return text.starts_with("GPU-") || text.starts_with("MIG-");
}

bool HasContainer(const PodInfo& pod, const std::string& name) {
  return !pod.request.ok() ||
         std::ranges::any_of(pod.request->containers,
                             [&](const auto& container) { return container.name == name; });
}

std::vector<grant::GrantedDevice> DevicesOf(const GrantLedger::Entry& entry) {
  std::vector<grant::GrantedDevice> devices;
  for (const device::DeviceShare& share : entry.shares) {
    DescribeLimits(share, &devices.emplace_back(grant::GrantedDevice{.uuid = share.uuid}));
  }
  return devices;
}

}  // namespace

void ApplyMemoryLimit(const PodInfo& pod, const std::string& container,
                      std::vector<grant::GrantedDevice>* devices) {
  const auto limits = device::ParseMemoryLimits(TextOf(pod));
  if (!limits.ok()) return;
  for (grant::GrantedDevice& device : *devices) {
    const auto limit = device::LimitFor(*limits, container, device.uuid);
    if (limit && device.bytes > 0) device.bytes = std::min(device.bytes, limit->count());
  }
}

LimitChanges::LimitChanges(std::string dir, ContainerLimits* limits, const GrantLedger* ledger,
                           Pods* pods)
    : dir_(std::move(dir)), limits_(limits), ledger_(ledger), pods_(pods) {}

void LimitChanges::OnPod(const PodInfo& pod) {
  if (dir_.empty()) return;
  const std::string text = TextOf(pod);
  const auto [seen, is_new] = seen_.try_emplace(pod.uid, text);
  if (!is_new && seen->second == text) return;
  seen->second = text;
  // At the agent's start all pods are new, and what is to be said of them has been said.
  const bool tell = !is_new || pods_->synced();
  if (tell) RecordProblems(pod);
  // Also of a pod that is new: the annotation may have changed while there was no agent.
  Write(pod, !is_new);
}

void LimitChanges::RecordProblems(const PodInfo& pod) {
  const std::string text = TextOf(pod);
  if (text.empty()) return;
  for (std::string& problem : ProblemsOf(pod, text)) {
    pods_->Record(pod, {.warning = true,
                        .reason = names::kReasonMemoryLimitRejected,
                        .message = std::move(problem)});
  }
}

std::vector<std::string> LimitChanges::ProblemsOf(const PodInfo& pod,
                                                  const std::string& text) const {
  const std::string what = fmt::format("annotation {}", names::kAnnotationMemoryLimit);
  const auto limits = device::ParseMemoryLimits(text);
  if (!limits.ok()) return {fmt::format("{}: {}", what, limits.status().message())};
  std::vector<std::string> problems;
  for (const device::MemoryLimit& limit : *limits) {
    if (limit.only.empty() || IsUuid(limit.only) || HasContainer(pod, limit.only)) continue;
    problems.push_back(fmt::format("{}: the pod has no container \"{}\"", what, limit.only));
  }
  for (const auto& [key, entry] : ledger_->entries()) {
    if (key.first != pod.uid) continue;
    for (const grant::GrantedDevice& device : DevicesOf(entry)) {
      const auto limit = device::LimitFor(*limits, key.second, device.uuid);
      if (limit && device.bytes == 0) {
        problems.push_back(fmt::format("{}: container {} has all of {}, which is not limited", what,
                                       key.second, device.uuid));
      } else if (limit && limit->count() > device.bytes) {
        problems.push_back(
            fmt::format("{}: container {} was granted {:.0f} MiB of {}, and cannot get {:.0f} MiB: "
                        "the annotation "
                        "only lowers the limit; make the pod anew with a larger request",
                        what, key.second, MiB(device.bytes), device.uuid, MiB(limit->count())));
      }
    }
  }
  return problems;
}

void LimitChanges::Write(const PodInfo& pod, bool tell) {
  std::vector<std::string> changes;
  for (const auto& [key, entry] : ledger_->entries()) {
    // Containers that are not limited have no file.
    if (key.first != pod.uid || !PathExists(LimitsPath(dir_, key))) continue;
    std::vector<grant::GrantedDevice> devices = DevicesOf(entry);
    ApplyMemoryLimit(pod, key.second, &devices);
    const auto written = limits_->Write(entry.holder, devices);
    if (!written.ok()) {
      Log(Severity::kError, "cannot change the limits of a container",
          {{"pod", pod.Text()}, {"container", key.second}, {"error", written.status().ToString()}});
      continue;
    }
    for (const grant::GrantedDevice& device : devices) {
      if (device.bytes == 0) continue;
      changes.push_back(fmt::format("container {} may use {:.0f} MiB of {}", key.second,
                                    MiB(device.bytes), device.uuid));
    }
  }
  if (!tell || changes.empty()) return;
  pods_->Record(pod, {.reason = names::kReasonMemoryLimitChanged,
                      .message = fmt::format("{}", fmt::join(changes, "; "))});
}

}  // namespace tessera::agent
