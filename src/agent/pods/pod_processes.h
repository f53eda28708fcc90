// SPDX-License-Identifier: Apache-2.0
// Which pods still have processes on this node: the evidence by which a GPU is released. A pod's
// cgroup is empty when no process of /proc names it, which holds for cgroup v1 and v2 and for both
// cgroup drivers; a process that hangs in the kernel (state D) or is frozen still counts, a zombie
// has closed its GPUs and does not. NVML adds processes that have left /proc while the driver still
// holds their memory.
//
// Not for whether a pod should be there: that is what API server and kubelet say (ended_pods.h).
// The agent must see the processes of the node: hostPID in its DaemonSet.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/device/assignment.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/process_reader.h"

namespace tessera::agent {

struct ProcessSightings {
  struct Process {
    int pid = 0;
    char state = '?';  // as in /proc/<pid>/stat: R, S, D, T
    bool operator==(const Process&) const = default;
  };

  // Why nothing is known: /proc cannot be read.
  Status status;
  std::map<std::string, std::vector<Process>, std::less<>> by_pod;  // by UID, in order of pid
  // Processes that the driver lists on a GPU, by UUID, and that /proc does not have any more.
  std::map<std::string, std::vector<int>, std::less<>> exited_on_gpu;

  // Describes for people the processes that are left of a pod with these shares: "process 4711
  // (state D) of it is still there", "2 processes of it are still there, the first is 4711 (state
  // S)"; "" if none is left.
  std::string RemainsOf(const std::string& pod_uid,
                        const std::vector<device::DeviceShare>& shares) const;
};

class PodProcesses {
 public:
  using Done = std::function<void(const ProcessSightings&)>;

  virtual ~PodProcesses() = default;
  // `done` runs later on the owner's runner, and not after the object is gone.
  virtual void Read(Done done) = 0;
};

// Reads <proc_root>/<pid>/cgroup of all processes. `gpus` is what the driver lists; blocks for some
// 10 µs per process.
ProcessSightings SightProcesses(const std::string& proc_root, const gpu::ProcessReport& gpus);

// The real one: asks the driver, then walks /proc on a thread of its own. A driver that is away or
// hangs adds nothing: its processes are in /proc, too. Threads: lives on `runner`.
class NodeProcesses final : public PodProcesses {
 public:
  // All outlive it.
  NodeProcesses(std::string proc_root, gpu::ProcessReader* gpus, gpu::BlockingCaller* caller);
  void Read(Done done) override;

 private:
  void Walk(const std::shared_ptr<const gpu::ProcessReport>& gpus, Done done);

  const std::string proc_root_;
  gpu::ProcessReader* const gpus_;
  gpu::BlockingCaller* const caller_;
  const std::shared_ptr<NodeProcesses*> self_ = std::make_shared<NodeProcesses*>(this);
};

}  // namespace tessera::agent
