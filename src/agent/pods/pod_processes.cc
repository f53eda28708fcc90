// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/pod_processes.h"

#include <optional>
#include <utility>

#include "src/agent/pods/process_owner.h"
#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

constexpr Duration kWalkDeadline = std::chrono::seconds(10);

// The state of a process; nullopt if it is gone or dead. The line of stat is "pid (name) state
// …", and the name may have spaces and brackets.
std::optional<char> StateOf(const std::string& proc_root, int pid) {
  const Result<std::string> stat = ReadFile(fmt::format("{}/{}/stat", proc_root, pid));
  const size_t name_end = stat.ok() ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return std::nullopt;
  const std::vector<std::string_view> fields =
      Split(std::string_view(*stat).substr(name_end + 2), ' ');
  const char state = fields[0].empty() ? '?' : fields[0][0];
  // A zombie with living threads keeps their GPUs; num_threads is field 20 of the line.
  constexpr size_t kThreads = 20 - 3;
  const bool has_other_threads =
      fields.size() > kThreads && fields[kThreads] != "0" && fields[kThreads] != "1";
  if ((state == 'Z' && !has_other_threads) || state == 'X') return std::nullopt;
  return state;
}

}  // namespace

std::string ProcessSnapshot::DescribeRemaining(
    const Uid& pod_uid, const std::vector<device::DeviceShare>& shares) const {
  const auto pod = by_pod.find(pod_uid);
  if (pod != by_pod.end() && !pod->second.empty()) {
    const LiveProcess& first = pod->second.front();
    const size_t count = pod->second.size();
    const std::string text = fmt::format("{} (state {})", first.pid, first.state);
    return count == 1
               ? fmt::format("its process {} still exists", text)
               : fmt::format("{} of its processes still exist, the first is {}", count, text);
  }
  for (const device::DeviceShare& share : shares) {
    const auto exited = exited_on_gpu.find(share.uuid);
    if (exited == exited_on_gpu.end() || exited->second.empty()) continue;
    return fmt::format("the driver still lists process {}, which has exited, on {}",
                       exited->second.front(), share.uuid);
  }
  return "";
}

ProcessSnapshot TakeProcessSnapshot(const std::string& proc_root,
                                    const gpu::ProcessReport& driver_processes) {
  ProcessSnapshot snapshot;
  const Result<PodProcessMap> pods = ListPodProcesses(proc_root);
  if (!pods.ok()) {
    snapshot.status = pods.status();
    return snapshot;
  }
  for (const auto& [uid, processes] : *pods) {
    for (const PodProcess& process : processes) {
      if (const auto state = StateOf(proc_root, process.pid))
        snapshot.by_pod[uid].push_back({process.pid, *state});
    }
  }
  for (const gpu::ProcessReport::GpuProcesses& gpu : driver_processes.gpus) {
    for (const gpu::ProcessUse& use : gpu.processes) {
      if (!StateOf(proc_root, use.pid)) snapshot.exited_on_gpu[gpu.uuid].push_back(use.pid);
    }
  }
  return snapshot;
}

NodeProcesses::NodeProcesses(std::string proc_root, gpu::ProcessReader* driver_processes,
                             gpu::BlockingCaller* caller)
    : proc_root_(std::move(proc_root)), driver_processes_(driver_processes), caller_(caller) {}

void NodeProcesses::Read(Done done) {
  driver_processes_->Read([this, done = std::move(done), weak = weak_.Get()](
                              const std::shared_ptr<const gpu::ProcessReport>& driver_processes) {
    if (weak) Walk(driver_processes, done);
  });
}

void NodeProcesses::Walk(const std::shared_ptr<const gpu::ProcessReport>& driver_processes,
                         Done done) {
  const auto snapshot = std::make_shared<ProcessSnapshot>();
  const auto answered = std::make_shared<bool>(false);
  const auto answer = [answered, done = std::move(done),
                       weak = weak_.Get()](const ProcessSnapshot& seen) {
    if (weak && !std::exchange(*answered, true)) done(seen);
  };
  gpu::BlockingCaller::Job job;
  job.name = "pod-processes";
  job.deadline = kWalkDeadline;
  job.work = [snapshot, driver_processes, root = proc_root_] {
    *snapshot = TakeProcessSnapshot(root, *driver_processes);
  };
  job.on_finished = [snapshot, answer] { answer(*snapshot); };
  job.on_overdue = [answer] {
    ProcessSnapshot none;
    none.status = Status(Code::kDeadlineExceeded, "/proc could not be read in time");
    answer(none);
  };
  caller_->Start(std::move(job));
}

}  // namespace tessera::agent
