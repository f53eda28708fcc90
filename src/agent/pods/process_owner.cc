// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/process_owner.h"

#include <algorithm>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::agent {
std::optional<ProcessOwner> ParseProcessOwner(std::string_view cgroup) {
  for (const std::string_view line : Split(cgroup, '\n')) {
    // "4:memory:/kubepods/…": the path begins after the second colon, and may contain colons.
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    if (auto owner = grant::ParsePodCgroup(line.substr(second + 1))) return owner;
  }
  return std::nullopt;
}

std::optional<ProcessOwner> OwnerOf(const std::string& proc_root, int pid) {
  const Result<std::string> cgroup = ReadFile(fmt::format("{}/{}/cgroup", proc_root, pid));
  return cgroup.ok() ? ParseProcessOwner(*cgroup) : std::nullopt;
}

Result<PodProcessMap> ListPodProcesses(const std::string& proc_root) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(proc_root));
  PodProcessMap pods;
  for (const std::string& name : names) {
    const Result<int64_t> pid = ParseInt(name);
    if (!pid.ok()) continue;
    const auto owner = OwnerOf(proc_root, static_cast<int>(*pid));
    if (!owner) continue;
    pods[owner->pod_uid].push_back({static_cast<int>(*pid), owner->container_id});
  }
  for (auto& [uid, processes] : pods) std::ranges::sort(processes, {}, &PodProcess::pid);
  return pods;
}

std::optional<int> OwnPidOf(const std::string& proc_root, int pid) {
  const Result<std::string> status = ReadFile(fmt::format("{}/{}/status", proc_root, pid));
  if (!status.ok()) return std::nullopt;
  for (const std::string_view line : Split(*status, '\n')) {
    // "NSpid:\t4711\t12" lists the pid in each PID namespace, from the namespace of this /proc down
    // to the process's own. Linux before 4.1 has no such line.
    if (!line.starts_with("NSpid:")) continue;
    const Result<int64_t> own = ParseInt(line.substr(line.rfind('\t') + 1));
    return own.ok() ? std::optional(static_cast<int>(*own)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tessera::agent
