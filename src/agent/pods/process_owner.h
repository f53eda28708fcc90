// SPDX-License-Identifier: Apache-2.0
// Finds the pod (by UID) and the container (by the engine's id) that a process belongs to, from
// /proc/<pid>/cgroup. Knows the paths of both cgroup drivers and both cgroup versions, and of
// containerd, CRI-O and Docker. A process cannot choose its cgroup; its environment could say
// anything.
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

// Of the text of /proc/<pid>/cgroup; nothing where that is no pod's.
std::optional<ProcessOwner> ParseProcessOwner(std::string_view cgroup);
// Nothing also where the process is gone. `proc_root`: "/proc".
std::optional<ProcessOwner> OwnerOf(const std::string& proc_root, int pid);

// The pid by which the process knows itself; in a container it is another one than `pid`. Nothing
// where the process is gone.
std::optional<int> OwnPidOf(const std::string& proc_root, int pid);

}  // namespace tessera::agent
