// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/process_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/weak_ptr.h"

namespace tessera::gpu {

// One job at a time uses the session; no job starts while another job hangs.
struct ProcessReader::NvmlSession {
  std::shared_ptr<NvmlLoader> loader;
  std::shared_ptr<Nvml> nvml;
  std::string fingerprint;

  ~NvmlSession() {
    if (nvml != nullptr) (void)nvml->Shutdown();
  }

  Status Open() {
    const std::string now = loader->Fingerprint();
    if (nvml != nullptr && now == fingerprint) return Status::Ok();
    if (nvml != nullptr) (void)nvml->Shutdown();
    nvml.reset();
    ASSIGN_OR_RETURN(std::shared_ptr<Nvml> loaded, loader->Load());
    RETURN_IF_ERROR(loaded->Init());
    nvml = std::move(loaded);
    fingerprint = now;
    return Status::Ok();
  }

  Result<ProcessReport::GpuProcesses> ReadGpu(int index, WallTime since) {
    ASSIGN_OR_RETURN(const NvmlDevice device, nvml->HandleByIndex(index));
    ProcessReport::GpuProcesses gpu;
    ASSIGN_OR_RETURN(gpu.uuid, nvml->Uuid(device));
    ASSIGN_OR_RETURN(const std::vector<GpuProcess> processes, nvml->ComputeProcesses(device));
    for (const GpuProcess& process : processes) {
      gpu.processes.push_back({.pid = process.pid, .memory = process.memory});
    }
    std::ranges::sort(gpu.processes, {}, &ProcessUse::pid);
    // GPUs that do not report loads (before Maxwell) still report memory.
    const Result<std::vector<ProcessLoad>> loads = nvml->ProcessLoads(device, since);
    if (!loads.ok()) return gpu;
    for (const ProcessLoad& load : *loads) {
      const auto at = std::ranges::lower_bound(gpu.processes, load.pid, {}, &ProcessUse::pid);
      if (at != gpu.processes.end() && at->pid == load.pid) at->percent = load.percent;
    }
    return gpu;
  }

  void Read(WallTime since, ProcessReport* report) {
    report->status = Open();
    if (!report->status.ok()) return;
    const Result<int> count = nvml->DeviceCount();
    report->status = count.status();
    for (int i = 0; count.ok() && i < *count; ++i) {
      Result<ProcessReport::GpuProcesses> gpu = ReadGpu(i, since);
      if (gpu.ok()) report->gpus.push_back(*std::move(gpu));
      if (gpu.status().code() == Code::kFailedPrecondition) report->status = gpu.status();
    }
    // The session is dead; the next request opens a new one.
    if (report->status.code() == Code::kFailedPrecondition) nvml.reset();
  }
};

struct ProcessReader::State {
  TaskRunner* runner;
  BlockingCaller* caller;
  std::shared_ptr<NvmlSession> session;
  bool running = false;  // true also while a query hangs
  std::vector<OnRead> waiting;
  std::shared_ptr<const ProcessReport> last;
  MonotonicTime last_at{};

  void Answer(std::shared_ptr<const ProcessReport> report) {
    last = std::move(report);
    last_at = runner->clock().Now();
    const std::shared_ptr<const ProcessReport> answer = last;
    for (const OnRead& on_read : std::exchange(waiting, {})) on_read(answer);
  }

  WeakPtrFactory<State> weak{this};
};

ProcessReader::ProcessReader(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader,
                             BlockingCaller* caller)
    : state_(std::make_unique<State>()) {
  state_->runner = runner;
  state_->caller = caller;
  state_->session = std::make_shared<NvmlSession>();
  state_->session->loader = std::move(loader);
}
ProcessReader::~ProcessReader() = default;

void ProcessReader::Read(OnRead on_read, Duration max_age) {
  State& state = *state_;
  const bool fresh = state.last != nullptr && state.runner->clock().Now() - state.last_at < max_age;
  const bool hangs = state.running && state.last != nullptr &&
                     state.last->status.code() == Code::kDeadlineExceeded;
  if (fresh || hangs) {
    state.runner->Post([weak = state.weak.Get(), on_read = std::move(on_read)] {
      if (weak) on_read(weak->last);
    });
    return;
  }
  state.waiting.push_back(std::move(on_read));
  if (!state.running) Start();
}

void ProcessReader::Refresh() {
  if (state_->running || state_->session->nvml == nullptr) return;
  state_->last = nullptr;
  Read([](const auto&) {});
}

void ProcessReader::Start() {
  state_->running = true;
  const auto report = std::make_shared<ProcessReport>();
  const WeakPtr<State> weak = state_->weak.Get();
  BlockingCaller::Job job;
  job.name = "nvml-processes";
  job.deadline = kDeadline;
  job.work = [session = state_->session, report,
              since = state_->runner->clock().WallNow() - kPeriod] {
    session->Read(since, &*report);
  };
  job.finished = [weak, report] {
    if (!weak) return;
    weak->running = false;
    weak->Answer(report);
  };
  job.overdue = [weak] {
    if (!weak) return;
    weak->Answer(std::make_shared<ProcessReport>(ProcessReport{
        .status =
            Status(Code::kDeadlineExceeded, "the driver did not return the processes on the GPUs"),
        .gpus = {}}));
  };
  state_->caller->Start(std::move(job));
}

}  // namespace tessera::gpu
