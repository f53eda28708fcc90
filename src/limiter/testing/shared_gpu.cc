// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/testing/shared_gpu.h"

#include <algorithm>
#include <cmath>

#include "src/limiter/compute/tuning.h"

namespace tessera::limiter::testing {
namespace {

constexpr int64_t kLaunchCost = 2'500, kRecordCost = 1'000;
constexpr int64_t kOvershoot = 60'000;  // maximum delay of a wake-up
// From the end of a process to the first launch of the next process.
constexpr int64_t kStart = 1 * kMillisecond;
constexpr int64_t kSamplePeriod = 100'000'000;
// A share is kept in windows of this many times the longest kernel.
constexpr int64_t kLongestInWindow = 50;
constexpr int64_t kNewStretch = 20 * kMillisecond;
constexpr int64_t kNvmlPeriod = 167'000'000, kNvmlAge = 200'000'000;

Work WorkOf(const Step& step) {
  return KernelWork(step.function + 1, step.blocks[0], step.blocks[1], 1);
}

struct ModelDriver {
  GpuModel* gpu;
  const int64_t* now;
  int context = 0;
  double meter_error = 1, contended_error = 1;
  int64_t cost = 0;  // sum over calls since the last reset

  int64_t Now() { return *now; }
  bool Record(int event, int stream) {
    gpu->Record(context, stream, event);
    cost += kRecordCost;
    return true;
  }
  bool Done(int event) { return gpu->Stamp(context, event) != GpuModel::kPending; }
  int64_t Elapsed(int start, int end) {
    const double error = meter_error * (IsAlone() ? 1 : contended_error);
    return int64_t(double(gpu->Stamp(context, end) - gpu->Stamp(context, start)) * error);
  }
  bool IsAlone() const {
    for (int other = 0; other < gpu->contexts(); ++other) {
      if (other != context && gpu->backlog(other) > 0) return false;
    }
    return true;
  }
};

}  // namespace

struct SharedGpu::Tenant {
  TenantOptions options;
  ComputeLimit limit = {};
  ComputeCharge charge = {};
  std::vector<Process*> processes;
  std::vector<int64_t> used;                            // at each sample
  std::vector<std::pair<int64_t, double>> utilization;  // by NVML: time, and whole percents
  int64_t nvml_used = 0;
};

struct SharedGpu::Process {
  Process(Tenant* owner, const Load& load, uint64_t seed, const ModelDriver& model)
      : tenant(owner),
        wake_cost(int64_t(load.wake)),
        begins(owner->options.start + int64_t(load.begins)),
        ends(int64_t(load.ends)),
        killed_after(int64_t(load.killed_after)),
        program(load, seed),
        driver(model),
        gate(&driver) {}
  void Open() { gate.books().Open({&tenant->limit, &part, &tenant->charge, &slot}, &prices); }
  Tenant* const tenant;
  bool exists(int64_t now) const { return now >= begins && state != kDead; }
  const int64_t wake_cost, begins, ends, killed_after;
  ComputeSlot slot = {};
  ComputePart part = {};
  Prices prices = {};
  Program program;
  ModelDriver driver;
  Gate<ModelDriver, int> gate;
  Books::ThreadCredit thread;
  Step step = {};
  enum { kReady, kHasStep, kQueueFull, kSyncing, kSynced, kDoomed, kDead } state = kReady;
  int64_t wake = 0, next_poll = INT64_MAX;
};

SharedGpu::SharedGpu(const SharedGpuOptions& options)
    : options_(options), gpu_(options.gpu), random_(options.seed) {
  for (const TenantOptions& tenant_options : options.tenants) {
    auto tenant = std::make_unique<Tenant>();
    tenant->options = tenant_options;
    for (const Load& load : tenant_options.processes) {
      const int context = gpu_.AddContext(load.streams, Gate<ModelDriver, int>::kEvents);
      ModelDriver driver{&gpu_, &now_, context};
      driver.meter_error = options.meter_error * load.meter_error;
      driver.contended_error = options.contended_error;
      auto* process = new Process(tenant.get(), load, random_(), driver);
      process->Open();
      process->thread.random = uint32_t(random_()) | 1;
      process->wake = process->begins + int64_t(random_() % 1'000'000);
      tenant->processes.push_back(process);
      processes_.push_back(process);
    }
    if (tenant_options.limited) arbiter_.Set(tenants_.size(), tenant_options.share);
    tenants_.push_back(std::move(tenant));
  }
}

SharedGpu::~SharedGpu() {
  for (Process* process : processes_) delete process;
}

double SharedGpu::bias(size_t tenant) const { return double(tenants_[tenant]->limit.bias) / kOne; }

void SharedGpu::Launch(Process* process) {
  process->driver.cost = 0;
  const int context = process->driver.context, stream = process->step.stream;
  int mark = Books::kNoMark;
  const Work work = WorkOf(process->step);
  const uint32_t epoch = process->gate.books().epoch();
  if (epoch != 0 && !process->gate.books().Spend(&process->thread, PriceKey(work), epoch)) {
    const Books::Launch launch{work, 20'000, uintptr_t(stream)};
    const int64_t wait = process->gate.Decide(&process->thread, launch, stream, &mark);
    if (process->next_poll == INT64_MAX) process->next_poll = now_ + kMillisecond;
    if (wait > 0) {
      process->wake = now_ + wait + int64_t(random_() % kOvershoot);
      return;
    }
  }
  if (mark != Books::kNoMark) {
    const bool start_recorded = process->gate.BeginLaunch(mark, stream);
    gpu_.Launch(context, stream, process->step.length);
    process->gate.EndLaunch(mark, stream, start_recorded);
  } else {
    gpu_.Launch(context, stream, process->step.length);
  }
  process->state = process->killed_after > 0 ? Process::kDoomed : Process::kReady;
  process->wake = now_ + (process->killed_after > 0 ? process->killed_after
                                                    : kLaunchCost + process->driver.cost);
}

// Kills the process for good. The agent clears the slot.
void SharedGpu::End(Process* process) {
  gpu_.Kill(process->driver.context);
  ClearSlot(process);
  process->state = Process::kDead;
  process->wake = process->next_poll = INT64_MAX;
}

void SharedGpu::ClearSlot(Process* process) {
  ComputeSlot& slot = process->slot;
  for (auto* field : {&slot.metered, &slot.in_flight, &slot.last_launch, &slot.last_long_work,
                      &slot.last_wait, &slot.last_written, &slot.longest, &slot.last_limited}) {
    field->store(0);
  }
}

// Kills the process, and starts another process, which clears and reuses the slot.
void SharedGpu::Restart(Process* process) {
  gpu_.Kill(process->driver.context);
  ClearSlot(process);
  process->prices.Clear();
  process->thread = {.random = uint32_t(random_()) | 1};
  process->Open();
  process->state = Process::kReady;
  process->wake = now_ + kStart;
  process->next_poll = INT64_MAX;
}

void SharedGpu::Handle(Process* process) {
  if (process->state != Process::kSynced && now_ >= process->tenant->options.end) {
    process->wake = INT64_MAX;
    return;
  }
  switch (process->state) {
    case Process::kDoomed:
      return Restart(process);
    case Process::kSynced:
      process->gate.EndWait(&process->thread, Books::Waited::kAll);
      process->state = Process::kReady;
      [[fallthrough]];
    case Process::kReady:
      process->step = process->program.Next();
      if (process->step.exchanged) process->gate.books().Forget(WorkOf(process->step));
      process->state = Process::kHasStep;
      break;
    default:
      break;
  }
  if (process->step.kind == Step::kThink) {
    process->state = Process::kReady;
    process->wake = now_ + process->step.length;
  } else if (process->step.kind == Step::kSync) {
    process->gate.BeginWait(&process->thread);
    process->state = Process::kSyncing;
    process->wake = INT64_MAX;
    gpu_.Watch(process->driver.context, true);
    WakeWaitingPrograms();
  } else if (gpu_.queued(process->driver.context) >= GpuModel::kMaxQueued) {
    process->state = Process::kQueueFull;
    process->wake = INT64_MAX;
    gpu_.Watch(process->driver.context, true);
  } else {
    Launch(process);
  }
}

// Wakes the programs that wait for the GPU.
void SharedGpu::WakeWaitingPrograms() {
  for (Process* process : processes_) {
    const int context = process->driver.context;
    if (process->state == Process::kSyncing && gpu_.backlog(context) == 0 &&
        gpu_.queued(context) == 0) {
      process->state = Process::kSynced;
      process->wake = now_ + process->wake_cost;
    } else if (process->state == Process::kQueueFull &&
               gpu_.queued(context) < GpuModel::kMaxQueued) {
      process->state = Process::kHasStep;
      process->wake = now_;
    } else {
      continue;
    }
    gpu_.Watch(context, false);
  }
}

void SharedGpu::Tick() {
  readings_.clear();
  for (size_t i = 0; i < tenants_.size(); ++i) {
    const Tenant& tenant = *tenants_[i];
    if (!tenant.options.limited || !arbiter_.IsDue(now_, i)) continue;
    Arbiter::ContainerReading reading{.id = i, .charged = tenant.charge.charged};
    for (size_t j = 0; j < tenant.processes.size(); ++j) {
      if (!tenant.processes[j]->exists(now_)) continue;
      reading.processes.push_back(ReadLine(uint32_t(j), tenant.processes[j]->slot));
    }
    readings_.push_back(std::move(reading));
  }
  const Arbiter::Division& division = arbiter_.Tick(now_, readings_);
  for (const Arbiter::Allowance& allowance : division.allowances) {
    WriteAllowance(allowance, &tenants_[allowance.id]->limit);
  }
  for (const Arbiter::ProcessPart& part : division.parts) {
    WritePart(part, &tenants_[part.id]->processes[part.slot]->part);
  }
  next_tick_ = division.next_tick;
  ++ticks_;
}

void SharedGpu::Sample() {
  const auto used_by = [&](const Tenant& tenant) {
    int64_t used = 0;
    for (const Process* process : tenant.processes) used += gpu_.used(process->driver.context);
    return used;
  };
  if (now_ >= next_sample_) {
    for (auto& tenant : tenants_) tenant->used.push_back(used_by(*tenant));
    next_sample_ += kSamplePeriod;
  }
  if (now_ >= next_nvml_) {
    for (auto& tenant : tenants_) {
      const int64_t used = used_by(*tenant);
      tenant->utilization.emplace_back(
          now_, std::round(100 * double(used - tenant->nvml_used) / double(kNvmlPeriod)) / 100);
      tenant->nvml_used = used;
    }
    next_nvml_ += kNvmlPeriod;
  }
  if (now_ < next_trim_ || now_ > options_.agent_dies) return;
  next_trim_ += 1'000'000'000;
  for (size_t i = 0; i < tenants_.size() && options_.trims; ++i) {
    double sum = 0;
    int count = 0;
    for (const auto& [at, percents] : tenants_[i]->utilization) {
      if (at > now_ - kNvmlAge || at <= now_ - kNvmlAge - 1'000'000'000) continue;
      sum += percents;
      ++count;
    }
    if (count > 0) arbiter_.RecordUtilization(now_, i, sum / count);
  }
}

int64_t SharedGpu::NextTime() const {
  int64_t next = std::min({next_tick_, next_sample_, next_nvml_, options_.length});
  for (const Process* process : processes_)
    next = std::min({next, process->wake, process->next_poll});
  return next;
}

// The high class begins a stretch of work with its first launch after a pause of kNewStretch. A
// shorter pause may be a wait for the low class to leave the GPU.
void SharedGpu::RecordDrain() {
  bool high = false;
  int64_t low = 0;
  for (const auto& tenant : tenants_) {
    for (const Process* process : tenant->processes) {
      const int64_t backlog = gpu_.backlog(process->driver.context);
      if (tenant->options.share.priority == PriorityClass::kHigh) high |= backlog > 0;
      if (tenant->options.share.priority == PriorityClass::kLow) low += backlog;
    }
  }
  if (high && now_ > high_until_ + kNewStretch) high_since_ = now_;
  if (high) high_until_ = now_;
  if (high && high_since_ >= 0 && low == 0) {
    drains.push_back(now_ - high_since_);
    high_since_ = -1;
  }
}

void SharedGpu::Run() {
  while (now_ < options_.length) {
    const int64_t next = NextTime();
    gpu_.RunUntil(next);
    now_ = gpu_.now();
    WakeWaitingPrograms();
    RecordDrain();
    if (now_ < next) continue;
    if (now_ >= options_.kill_at) {
      Process* victim = tenants_[0]->processes[0];
      gpu_.Kill(victim->driver.context);
      victim->state = Process::kDead;
      victim->wake = victim->next_poll = INT64_MAX;
    }
    if (now_ >= next_tick_) {
      if (now_ < options_.agent_dies)
        Tick();
      else
        next_tick_ = INT64_MAX;
    }
    Sample();
    for (Process* process : processes_) {
      if (process->next_poll <= now_)
        process->next_poll = process->gate.Poll() ? now_ + kMillisecond : INT64_MAX;
      if (process->state != Process::kDead && process->ends <= now_) End(process);
      if (process->wake <= now_) Handle(process);
    }
  }
}

int64_t SharedGpu::WindowOf(size_t tenant) const {
  int64_t longest = 0;
  for (const Process* process : tenants_[tenant]->processes) {
    longest = std::max(longest, process->program.longest());
  }
  const int64_t window = std::max<int64_t>(1'000'000'000, kLongestInWindow * longest);
  return (window + kSamplePeriod - 1) / kSamplePeriod * kSamplePeriod;
}

// A run may find longer kernels, which make the windows longer. Then the run continues.
void SharedGpu::RunWindows(int64_t from, int count) {
  for (;;) {
    int64_t window = 0;
    for (size_t i = 0; i < tenants_.size(); ++i) window = std::max(window, WindowOf(i));
    if (now_ >= from + count * window) return;
    options_.length = from + count * window;
    Run();
  }
}

SharedGpu::Figures SharedGpu::UsageOf(size_t index, int64_t from, int64_t window) const {
  const std::vector<int64_t>& used = tenants_[index]->used;
  const auto first = size_t(from / kSamplePeriod), width = size_t(window / kSamplePeriod);
  std::vector<double> parts;
  for (size_t i = first; i + width < used.size(); ++i)
    parts.push_back(100 * double(used[i + width] - used[i]) / double(window));
  Figures figures;
  if (parts.empty()) return figures;
  for (double part : parts) {
    figures.mean += part / double(parts.size());
    figures.max = std::max(figures.max, part);
  }
  double squares = 0;
  for (double part : parts) squares += (part - figures.mean) * (part - figures.mean);
  figures.deviation = std::sqrt(squares / double(parts.size()));
  return figures;
}

double SharedGpu::SwingOf(size_t index, double share, int64_t from) const {
  const std::vector<int64_t>& used = tenants_[index]->used;
  double least = 1e18, most = -1e18;
  for (auto i = size_t(from / kSamplePeriod); i < used.size(); ++i) {
    const double ahead = double(used[i]) - share * double(i) * double(kSamplePeriod);
    least = std::min(least, ahead);
    most = std::max(most, ahead);
  }
  return most - least;
}

TenantOptions HardLimit(double limit, const Load& load) {
  return {.share = {.request = limit, .limit = limit}, .processes = {load}};
}

bool Holds(const SharedGpu::Figures& figures, double wanted) {
  return std::abs(figures.mean - wanted) <= kTolerancePoints &&
         figures.deviation <= kTolerancePoints;
}

double DemandOf(const Load& load) {
  SharedGpu gpu({.tenants = {{.processes = {load}, .limited = false}}, .length = 2'000'000'000});
  gpu.Run();
  return gpu.UsageOf(0, 500'000'000, 1'000'000'000).mean;
}

}  // namespace tessera::limiter::testing
