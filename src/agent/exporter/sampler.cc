// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/sampler.h"

#include <atomic>
#include <utility>

#include "src/base/log.h"

namespace tessera::agent {

// A session is destroyed on the thread of a job, because closing it can block.
struct Sampler::NvmlSession {
  std::shared_ptr<gpu::Nvml> nvml;
  std::string library_fingerprint;
  std::vector<std::unique_ptr<GpuReader>> readers;  // each is used by one job at a time
  std::atomic<bool> is_dead{false};                 // the driver has ended it

  ~NvmlSession() {
    readers.clear();
    if (nvml != nullptr && !is_dead) (void)nvml->Shutdown();
  }

  // Whether the session can continue.
  bool IsCurrent(gpu::NvmlLoader* loader) {
    if (is_dead || loader->Fingerprint() != library_fingerprint) return false;
    const Result<int> count = nvml->DeviceCount();
    if (count.status().code() == Code::kFailedPrecondition) is_dead = true;
    return !is_dead && (!count.ok() || static_cast<size_t>(*count) == readers.size());
  }

  static Result<std::shared_ptr<NvmlSession>> Open(
      gpu::NvmlLoader* loader, const std::shared_ptr<const CounterSpecs>& counters) {
    auto session = std::make_shared<NvmlSession>();
    session->library_fingerprint = loader->Fingerprint();
    ASSIGN_OR_RETURN(std::shared_ptr<gpu::Nvml> nvml, loader->Load());
    RETURN_IF_ERROR(nvml->Init());
    session->nvml = std::move(nvml);
    ASSIGN_OR_RETURN(const int count, session->nvml->DeviceCount());
    for (int i = 0; i < count; ++i) {
      session->readers.push_back(std::make_unique<GpuReader>(session->nvml.get(), i, counters));
    }
    return session;
  }
};

Sampler::Sampler(TaskRunner* runner, std::shared_ptr<gpu::NvmlLoader> loader,
                 gpu::BlockingCaller* caller, std::shared_ptr<const CounterSpecs> counters,
                 Duration interval, std::function<void()> on_round)
    : runner_(runner),
      loader_(std::move(loader)),
      caller_(caller),
      counters_(std::move(counters)),
      interval_(interval),
      on_round_(std::move(on_round)) {}

void Sampler::Tick() {
  runner_->PostDelayed(interval_, [this, weak = weak_.Get()] {
    if (weak) Tick();
  });
  if (runner_->clock().Now() >= next_check_) CheckSession();
  StartRound();
}

void Sampler::StartRound() {
  ++round_;
  awaited_answers_ = 0;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].query_running) continue;
    ++awaited_answers_;
    ReadGpu(i);
  }
  if (awaited_answers_ == 0) return on_round_();
  runner_->PostDelayed(kRoundDeadline, [this, round = round_, weak = weak_.Get()] {
    if (!weak || round != round_ || awaited_answers_ == 0) return;
    awaited_answers_ = 0;
    on_round_();
  });
}

void Sampler::CheckSession() {
  if (checking_session_) return;
  checking_session_ = true;
  next_check_ = runner_->clock().Now() + kSessionCheckInterval;
  struct Check {
    std::shared_ptr<NvmlSession> current_session;
    Result<std::shared_ptr<NvmlSession>> new_session = std::shared_ptr<NvmlSession>();
    bool is_current = false;
  };
  const auto check = std::make_shared<Check>();
  check->current_session = session_;
  gpu::BlockingCaller::Job job;
  job.name = "exporter-driver";
  job.deadline = kOpenCloseDeadline;
  job.work = [check, loader = loader_, counters = counters_] {
    const std::shared_ptr<NvmlSession> current_session = check->current_session;
    check->is_current = current_session != nullptr && current_session->IsCurrent(loader.get());
    if (!check->is_current) check->new_session = NvmlSession::Open(loader.get(), counters);
    // The last reference must not be dropped on the runner's thread, because that closes the
    // session.
    check->current_session.reset();
  };
  job.on_finished = [this, check, weak = weak_.Get()] {
    if (!weak) return;
    checking_session_ = false;
    if (check->is_current) return;
    const std::string problem = check->new_session.status().message();
    if (problem != session_problem_ && !problem.empty()) {
      Log(Severity::kWarning, "cannot read GPUs for dcgm-exporter's metrics", {{"error", problem}});
    }
    session_problem_ = problem;
    UseSession(check->new_session.ok() ? *check->new_session : nullptr);
  };
  job.on_overdue = [] {
    Log(Severity::kError,
        "the driver has not opened a session for dcgm-exporter's metrics in time");
  };
  caller_->Start(std::move(job));
}

void Sampler::UseSession(std::shared_ptr<NvmlSession> session) {
  if (session == nullptr && session_ == nullptr) return;
  std::shared_ptr<NvmlSession> old = std::exchange(session_, std::move(session));
  ++generation_;
  gpus_.assign(session_ == nullptr ? 0 : session_->readers.size(), {});
  for (SampledGpu& gpu : gpus_) gpu.answered_at = runner_->clock().Now();
  if (old != nullptr) Close(std::move(old));
  StartRound();
}

void Sampler::Close(std::shared_ptr<NvmlSession> session) {
  const auto last = std::make_shared<std::shared_ptr<NvmlSession>>(std::move(session));
  gpu::BlockingCaller::Job job;
  job.name = "exporter-close";
  job.deadline = kOpenCloseDeadline;
  job.work = [last] { last->reset(); };
  job.on_finished = [] {};
  job.on_overdue = [] { Log(Severity::kError, "the driver has not closed a session in time"); };
  caller_->Start(std::move(job));
}

void Sampler::ReadGpu(size_t index) {
  gpus_[index].query_running = true;
  struct GpuRead {
    std::shared_ptr<NvmlSession> session;
    Result<GpuSample> sample = GpuSample();
  };
  const auto reading = std::make_shared<GpuRead>();
  reading->session = session_;
  gpu::BlockingCaller::Job job;
  job.name = fmt::format("exporter-gpu{}", index);
  job.deadline = kReadDeadline;
  job.work = [reading, index] {
    const std::shared_ptr<NvmlSession> session = reading->session;
    reading->sample = session->readers[index]->Read();
    if (reading->sample.status().code() == Code::kFailedPrecondition) session->is_dead = true;
    reading->session.reset();
  };
  job.on_finished = [this, reading, generation = generation_, round = round_, index,
                     weak = weak_.Get()] {
    if (weak) OnRead(generation, round, index, reading->sample);
  };
  job.on_overdue = [this, generation = generation_, round = round_, index, weak = weak_.Get()] {
    if (weak) OnOverdue(generation, round, index);
  };
  caller_->Start(std::move(job));
}

void Sampler::OnRead(uint64_t generation, uint64_t round, size_t index,
                     const Result<GpuSample>& sample) {
  if (generation != generation_) return;
  SampledGpu& gpu = gpus_[index];
  gpu.query_running = false;
  gpu.sample = sample.ok() ? std::make_shared<const GpuSample>(*sample) : nullptr;
  if (sample.ok()) gpu.answered_at = runner_->clock().Now();
  OnAnswered(round);
}

void Sampler::OnOverdue(uint64_t generation, uint64_t round, size_t index) {
  if (generation != generation_) return;
  gpus_[index].sample = nullptr;
  ++gpus_[index].late_queries;
  OnAnswered(round);
}

void Sampler::OnAnswered(uint64_t round) {
  // The answer belongs to an earlier round, or came after the end of this round.
  if (round != round_ || awaited_answers_ == 0) return on_round_();
  if (--awaited_answers_ == 0) on_round_();
}

}  // namespace tessera::agent
