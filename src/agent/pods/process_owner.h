// SPDX-License-Identifier: Apache-2.0
// Finds the pod (by UID) and the container (by the engine's ID) of a process, from
// /proc/<pid>/cgroup. Reads the paths of both cgroup drivers and both cgroup versions, of
// containerd, CRI-O and Docker. A process cannot choose its cgroup, but it can its environment.
//
// Threads: pure, but for reading files of /proc.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::agent {

struct ProcessOwner {
  std::string pod_uid;       // "fd3b355a-665c-4c95-8e7f-61fd2111689f"
  std::string container_id;  // "" for a process of the pod itself
  bool operator==(const ProcessOwner&) const = default;
};

// From the text of /proc/<pid>/cgroup; nothing for a process outside pods.
std::optional<ProcessOwner> ParseProcessOwner(std::string_view cgroup);
// The same; nothing also where the process is gone. `proc_root`: "/proc".
std::optional<ProcessOwner> OwnerOf(const std::string& proc_root, int pid);

// The pid in the process's own PID namespace, which differs from `pid` in a container. Nothing
// where the process is gone.
std::optional<int> OwnPidOf(const std::string& proc_root, int pid);

}  // namespace tessera::agent
