// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/process_reader.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "src/base/weak_ptr.h"

namespace tessera::gpu {

namespace {

// The newest sample of a GPU. Its age counts from the first time that it was read, because the
// driver's clock may differ from this program's, for example after the time of the node was set.
struct NewestSample {
  uint64_t end_us = 0;  // 0: none
  MonotonicTime first_read_at{};
};

// The loads of the last kLoadPeriod.
std::vector<ProcessLoad> RecentLoads(std::vector<ProcessLoad> loads, MonotonicTime now,
                                     NewestSample* newest) {
  if (loads.empty()) return loads;
  const uint64_t end_us = std::ranges::max(loads, {}, &ProcessLoad::end_us).end_us;
  if (end_us != newest->end_us) *newest = {end_us, now};
  if (now - newest->first_read_at >= ProcessReader::kLoadPeriod) return {};
  constexpr uint64_t kPeriodUs =
      std::chrono::duration_cast<std::chrono::microseconds>(ProcessReader::kLoadPeriod).count();
  std::erase_if(loads, [&](const ProcessLoad& load) { return load.end_us + kPeriodUs <= end_us; });
  return loads;
}

}  // namespace

// A session with the driver. The jobs of all GPUs use it at the same time, and its last owner
// closes it, which can block. The last owner is a job, unless the reader is destroyed.
struct ProcessReader::NvmlSession {
  std::shared_ptr<Nvml> nvml;
  std::string fingerprint;
  std::atomic<bool> is_dead{false};  // the driver has ended it

  ~NvmlSession() {
    if (nvml != nullptr && !is_dead) (void)nvml->Shutdown();
  }

  static Result<std::shared_ptr<NvmlSession>> Open(NvmlLoader* loader) {
    auto session = std::make_shared<NvmlSession>();
    session->fingerprint = loader->Fingerprint();
    ASSIGN_OR_RETURN(std::shared_ptr<Nvml> nvml, loader->Load());
    RETURN_IF_ERROR(nvml->Init());
    session->nvml = std::move(nvml);
    return session;
  }

  Result<ProcessReport::GpuProcesses> ReadGpu(int index, MonotonicTime now, NewestSample* newest) {
    ASSIGN_OR_RETURN(const NvmlDevice device, nvml->HandleByIndex(index));
    ProcessReport::GpuProcesses gpu;
    ASSIGN_OR_RETURN(gpu.uuid, nvml->Uuid(device));
    ASSIGN_OR_RETURN(const std::vector<GpuProcess> processes, nvml->ComputeProcesses(device));
    for (const GpuProcess& process : processes) {
      gpu.processes.push_back({.pid = process.pid, .memory = process.memory});
    }
    std::ranges::sort(gpu.processes, {}, &ProcessUse::pid);
    // GPUs that do not report loads (before Maxwell) still report memory.
    Result<std::vector<ProcessLoad>> loads = nvml->ProcessLoads(device);
    if (!loads.ok()) return gpu;
    for (const ProcessLoad& load : RecentLoads(*std::move(loads), now, newest)) {
      const auto at = std::ranges::lower_bound(gpu.processes, load.pid, {}, &ProcessUse::pid);
      if (at != gpu.processes.end() && at->pid == load.pid) at->percent = load.percent;
    }
    return gpu;
  }
};

// The first step of a query: a session that works, and the number of its GPUs.
struct ProcessReader::SessionCheck {
  // Before Run: the previous session. After Run: the session to use. May be null.
  std::shared_ptr<NvmlSession> session;
  int count = 0;
  Status status;

  void Run(NvmlLoader* loader) {
    if (session != nullptr && (session->is_dead || loader->Fingerprint() != session->fingerprint)) {
      session.reset();
    }
    if (session == nullptr) {
      Result<std::shared_ptr<NvmlSession>> opened = NvmlSession::Open(loader);
      status = opened.status();
      if (!opened.ok()) return;
      session = *std::move(opened);
    }
    const Result<int> counted = session->nvml->DeviceCount();
    status = counted.status();
    count = counted.value_or(0);
    if (status.code() != Code::kFailedPrecondition) return;
    session->is_dead = true;  // the next request opens a new session
    session.reset();
  }
};

struct ProcessReader::State {
  struct GpuQuery {
    bool query_running = false;  // true also while it hangs
    bool awaited = false;        // the current query waits for it
    NewestSample newest_sample;
    std::optional<ProcessReport::GpuProcesses> answer;  // to the current query
  };

  TaskRunner* runner;
  BlockingCaller* caller;
  std::shared_ptr<NvmlLoader> loader;
  std::shared_ptr<NvmlSession> session;  // null also while it is checked
  const NvmlSession* session_of_gpus = nullptr;
  std::vector<GpuQuery> gpus;
  uint64_t generation = 0;     // of `gpus`; answers for earlier generations are ignored
  bool running = false;        // a query runs
  bool session_hangs = false;  // the check of the session has missed its deadline
  uint64_t query_number = 0;   // of the current query
  size_t awaited_count = 0;    // GPUs that the current query waits for
  Status session_error;        // of a GPU that found the session dead in the current query
  std::vector<OnRead> waiting;
  std::shared_ptr<const ProcessReport> last_report;
  MonotonicTime last_report_at{};

  void Start();
  void OnSession(const SessionCheck& check);
  void StartGpu(size_t index);
  void OnGpu(uint64_t of_generation, uint64_t of_query, size_t index,
             const NewestSample& newest_sample, Result<ProcessReport::GpuProcesses> answer);
  void OnAnswered(uint64_t of_query, size_t index);
  void AnswerGpus();
  void Answer(ProcessReport report);

  WeakPtrFactory<State> weak{this};
};

void ProcessReader::State::Start() {
  running = true;
  const auto check = std::make_shared<SessionCheck>();
  check->session = std::move(session);
  session = nullptr;
  BlockingCaller::Job job;
  job.name = "nvml-processes";
  job.deadline = kOpenDeadline;
  job.work = [check, loader = loader] { check->Run(loader.get()); };
  job.on_finished = [weak = weak.Get(), check] {
    if (weak) weak->OnSession(*check);
  };
  job.on_overdue = [weak = weak.Get()] {
    if (!weak) return;
    weak->session_hangs = true;
    weak->Answer({.status = Status(Code::kDeadlineExceeded,
                                   "cannot read the processes on the GPUs: the driver did not "
                                   "answer within 3 s: run nvidia-smi on the node"),
                  .gpus = {}});
  };
  caller->Start(std::move(job));
}

void ProcessReader::State::OnSession(const SessionCheck& check) {
  const bool was_late = std::exchange(session_hangs, false);
  session = check.session;
  if (was_late) {  // the requests were answered at the deadline
    running = false;
    last_report = nullptr;
    return;
  }
  if (!check.status.ok()) {
    running = false;
    return Answer({.status = check.status, .gpus = {}});
  }
  const auto count = static_cast<size_t>(check.count);
  if (session.get() != session_of_gpus || count != gpus.size()) {
    ++generation;
    session_of_gpus = session.get();
    gpus.assign(count, {});
  }
  ++query_number;
  session_error = Status::Ok();
  // Set before the first job starts, because a job may end at once.
  awaited_count = static_cast<size_t>(
      std::ranges::count(gpus, false, [](const GpuQuery& gpu) { return gpu.query_running; }));
  for (size_t i = 0; i < gpus.size(); ++i) {
    gpus[i].answer.reset();
    gpus[i].awaited = !gpus[i].query_running;
    if (gpus[i].awaited) StartGpu(i);
  }
  if (awaited_count == 0) AnswerGpus();
}

void ProcessReader::State::StartGpu(size_t index) {
  gpus[index].query_running = true;
  struct ProcessQuery {
    std::shared_ptr<NvmlSession> session;
    NewestSample newest_sample;
    Result<ProcessReport::GpuProcesses> answer = ProcessReport::GpuProcesses();
  };
  const auto reading = std::make_shared<ProcessQuery>();
  reading->session = session;
  reading->newest_sample = gpus[index].newest_sample;
  BlockingCaller::Job job;
  job.name = fmt::format("nvml-procs-{}", index);
  job.deadline = kGpuDeadline;
  job.work = [reading, index, now = runner->clock().Now()] {
    const std::shared_ptr<NvmlSession> session = reading->session;
    reading->answer = session->ReadGpu(static_cast<int>(index), now, &reading->newest_sample);
    if (reading->answer.status().code() == Code::kFailedPrecondition) session->is_dead = true;
    reading->session.reset();
  };
  job.on_finished = [weak = weak.Get(), reading, generation = generation,
                     query_number = query_number, index] {
    if (!weak) return;
    weak->OnGpu(generation, query_number, index, reading->newest_sample,
                std::move(reading->answer));
  };
  job.on_overdue = [weak = weak.Get(), generation = generation, query_number = query_number,
                    index] {
    if (weak && generation == weak->generation) weak->OnAnswered(query_number, index);
  };
  caller->Start(std::move(job));
}

void ProcessReader::State::OnGpu(uint64_t of_generation, uint64_t of_query, size_t index,
                                 const NewestSample& newest_sample,
                                 Result<ProcessReport::GpuProcesses> answer) {
  if (of_generation != generation) return;
  gpus[index].query_running = false;
  gpus[index].newest_sample = newest_sample;
  // The query to which this answer belongs has ended without this GPU.
  if (of_query != query_number || awaited_count == 0) return;
  if (answer.ok()) gpus[index].answer = *std::move(answer);
  if (answer.status().code() == Code::kFailedPrecondition) session_error = answer.status();
  OnAnswered(of_query, index);
}

void ProcessReader::State::OnAnswered(uint64_t of_query, size_t index) {
  // A GPU that returns after its deadline was already counted at the deadline.
  if (of_query != query_number || !std::exchange(gpus[index].awaited, false)) return;
  if (--awaited_count == 0) AnswerGpus();
}

void ProcessReader::State::AnswerGpus() {
  running = false;
  ProcessReport report{.status = session_error, .gpus = {}};
  bool has_hanging_gpu = false;
  for (GpuQuery& gpu : gpus) {
    has_hanging_gpu |= gpu.query_running;
    if (gpu.answer) report.gpus.push_back(*std::exchange(gpu.answer, std::nullopt));
  }
  if (report.status.ok() && report.gpus.empty() && has_hanging_gpu) {
    report.status = Status(Code::kDeadlineExceeded,
                           "cannot read the processes on the GPUs: no GPU answered within "
                           "250 ms: run nvidia-smi on the node");
  }
  Answer(std::move(report));
}

void ProcessReader::State::Answer(ProcessReport report) {
  last_report = std::make_shared<const ProcessReport>(std::move(report));
  last_report_at = runner->clock().Now();
  const std::shared_ptr<const ProcessReport> answer = last_report;
  for (const OnRead& on_read : std::exchange(waiting, {})) on_read(answer);
}

ProcessReader::ProcessReader(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader,
                             BlockingCaller* caller)
    : state_(std::make_unique<State>()) {
  state_->runner = runner;
  state_->caller = caller;
  state_->loader = std::move(loader);
}
ProcessReader::~ProcessReader() = default;

void ProcessReader::Read(OnRead on_read, Duration max_age) {
  State& state = *state_;
  const bool fresh =
      state.last_report != nullptr && state.runner->clock().Now() - state.last_report_at < max_age;
  if (fresh || state.session_hangs) {
    state.runner->Post(
        [weak = state.weak.Get(), on_read = std::move(on_read), last_report = state.last_report] {
          if (weak) on_read(last_report);
        });
    return;
  }
  state.waiting.push_back(std::move(on_read));
  if (!state.running) state.Start();
}

void ProcessReader::Refresh() {
  if (state_->running || state_->session == nullptr) return;
  state_->last_report = nullptr;
  Read([](const auto&) {});
}

}  // namespace tessera::gpu
