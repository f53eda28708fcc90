// SPDX-License-Identifier: Apache-2.0
// Finds the pod (by UID) and the container (by the engine's ID) of a process, from
// /proc/<pid>/cgroup. Reads the paths of both cgroup drivers and both cgroup versions, of
// containerd, CRI-O and Docker. Does not read the environment, because a process can choose its
// environment, but not its cgroup.
//
// Threads: any. Reads files of /proc.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/grant/pod_cgroup.h"

namespace tessera::agent {

using ProcessOwner = grant::PodCgroup;

// Reads the owner from the text of /proc/<pid>/cgroup; nullopt for a process outside pods.
std::optional<ProcessOwner> ParseProcessOwner(std::string_view cgroup);
// The owner of process `pid`; nullopt also if the process is gone. `proc_root`: "/proc".
std::optional<ProcessOwner> OwnerOf(const std::string& proc_root, int pid);

// A process of a pod; `container_id` is the engine's ID in the path of its cgroup.
struct PodProcess {
  int pid = 0;
  std::string container_id;
};
// The processes by pod, in order of pids.
using PodProcessMap = std::map<Uid, std::vector<PodProcess>>;
// Reads <proc_root>/<pid>/cgroup of all processes: about 10 µs each.
Result<PodProcessMap> ListPodProcesses(const std::string& proc_root);

// The pid in the process's own PID namespace, which differs from `pid` in a container. Nullopt
// if the process is gone.
std::optional<int> OwnPidOf(const std::string& proc_root, int pid);

}  // namespace tessera::agent
