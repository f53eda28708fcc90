// SPDX-License-Identifier: Apache-2.0
// Finds the pods that still have processes on this node, because a GPU is released only after the
// last process. A pod has left when no process of /proc is in its cgroup, for both cgroup versions
// and both cgroup drivers. A process that hangs in the kernel (state D) or is frozen counts; a
// zombie whose threads have all ended has closed its GPUs and does not count. NVML adds processes
// that have left /proc while the driver still holds their memory.
//
// A pod without processes may still exist: ended_pods.h decides whether it is gone, with the API
// server and the kubelet. The agent must see the processes of the node: its DaemonSet sets hostPID.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/uid.h"
#include "src/base/weak_ptr.h"
#include "src/device/assignment.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/process_reader.h"

namespace tessera::agent {

struct ProcessSnapshot {
  struct LiveProcess {
    int pid = 0;
    char state = '?';  // as in /proc/<pid>/stat: R, S, D, T
    bool operator==(const LiveProcess&) const = default;
  };

  // An error if /proc cannot be read; then the rest is empty.
  Status status;
  std::map<Uid, std::vector<LiveProcess>> by_pod;  // in order of pid
  // Processes that have left /proc and that the driver still lists on a GPU, by the GPU's UUID.
  std::map<std::string, std::vector<int>, std::less<>> exited_on_gpu;

  // Describes for users the remaining processes of a pod with these shares: "its process 4711
  // (state D) still exists", "2 of its processes still exist, the first is 4711 (state S)"; "" if
  // no process is left.
  std::string DescribeRemaining(const Uid& pod_uid,
                                const std::vector<device::DeviceShare>& shares) const;
};

class PodProcesses {
 public:
  using Done = std::function<void(const ProcessSnapshot&)>;

  virtual ~PodProcesses() = default;
  // Calls `done` later on the owner's runner, and not after the object is destroyed.
  virtual void Read(Done done) = 0;
};

// Reads <proc_root>/<pid>/cgroup of all processes. `driver_processes`: the driver's list of
// processes. Blocks for about 10 µs per process.
ProcessSnapshot TakeProcessSnapshot(const std::string& proc_root,
                                    const gpu::ProcessReport& driver_processes);

// The processes of this node. Lists the processes that the driver reports, then walks /proc on a
// thread of its own. A driver that is missing or hangs adds nothing; the processes that use it are
// in /proc, too. Threads: lives on `runner`.
class NodeProcesses final : public PodProcesses {
 public:
  // The arguments must outlive the object.
  NodeProcesses(std::string proc_root, gpu::ProcessReader* driver_processes,
                gpu::BlockingCaller* caller);
  void Read(Done done) override;

 private:
  void Walk(const std::shared_ptr<const gpu::ProcessReport>& driver_processes, Done done);

  const std::string proc_root_;
  gpu::ProcessReader* const driver_processes_;
  gpu::BlockingCaller* const caller_;
  WeakPtrFactory<NodeProcesses> weak_{this};
};

}  // namespace tessera::agent
