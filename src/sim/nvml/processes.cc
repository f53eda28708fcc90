// SPDX-License-Identifier: Apache-2.0
// Processes on a GPU, and how much of the GPU they use. Like the real driver, these functions do
// not list processes outside of the caller's pid namespace.
#include <atomic>
#include <memory>
#include <new>

#include "src/sim/nvml/model.h"
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

constexpr unsigned kEnginePeriodUs = 167000;

enum DetailMode : unsigned { kCompute, kGraphics, kMps, kDetailModes };
enum SampleType : unsigned {
  kPowerSamples,
  kGpuSamples,
  kMemorySamples,
  kEncoderSamples,
  kDecoderSamples,
  kCoreClockSamples,
  kMemoryClockSamples,
  kSampleTypes = 10,
};

// The live processes of a GPU in the caller's pid namespace.
class ProcessList {
 public:
  explicit ProcessList(const GpuCall& gpu)
      : views_(new (std::nothrow) sim::ProcessView[sim::kMaxSlots]) {
    if (views_ == nullptr) return;
    std::uint32_t found = gpu.state().Processes(gpu.gpu_index(), views_.get(), sim::kMaxSlots);
    if (found > sim::kMaxSlots) found = sim::kMaxSlots;
    for (std::uint32_t i = 0; i < found; ++i) {
      const bool is_on_device =
          gpu.instance_plus_1() == 0 || gpu.instance_plus_1() == views_[i].instance_plus_1;
      if (is_on_device && views_[i].pid > 0) views_[count_++] = views_[i];
    }
  }

  bool valid() const { return views_ != nullptr; }
  unsigned size() const { return count_; }
  const sim::ProcessView& operator[](unsigned i) const { return views_[i]; }

 private:
  std::unique_ptr<sim::ProcessView[]> views_;
  unsigned count_ = 0;
};

// Ids of the MIG instances of a process, or kNoInstance.
struct InstanceIds {
  InstanceIds(const GpuCall& gpu, const sim::ProcessView& view) {
    if (view.instance_plus_1 == 0) return;
    const sim::ComputeInstance& instance =
        gpu.gpu_state().compute_instances[view.instance_plus_1 - 1];
    gpu_instance = gpu.gpu_state().gpu_instances[instance.gpu_instance.load()].id.load();
    compute_instance = instance.id.load();
  }
  unsigned gpu_instance = kNoInstance;
  unsigned compute_instance = kNoInstance;
};

void Fill(const GpuCall&, const sim::ProcessView& view, ProcessInfoV1* info) {
  info->pid = static_cast<unsigned>(view.pid);
  info->used_gpu_memory = view.bytes;
}

void Fill(const GpuCall& gpu, const sim::ProcessView& view, ProcessInfo* info) {
  const InstanceIds ids(gpu, view);
  info->pid = static_cast<unsigned>(view.pid);
  info->used_gpu_memory = view.bytes;
  info->gpu_instance_id = ids.gpu_instance;
  info->compute_instance_id = ids.compute_instance;
}

template <typename Info>
Return ListComputeProcesses(const char* function, Device device, unsigned* count, Info* infos) {
  const GpuCall gpu(function, device, WhenLost::kFail, MigDevice::kSupported);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(count != nullptr);
  const ProcessList list(gpu);
  if (!list.valid()) return Return::kMemory;
  const unsigned capacity = *count;
  *count = list.size();
  if (list.size() == 0) return Return::kSuccess;
  // Clients query the size with capacity 0; a null array with another capacity is invalid.
  if (capacity < list.size()) return Return::kInsufficientSize;
  NVML_REQUIRE(infos != nullptr);
  for (unsigned i = 0; i < list.size(); ++i) Fill(gpu, list[i], &infos[i]);
  return Return::kSuccess;
}

// A simulated GPU has no graphics processes and no MPS server.
Return ListNoProcesses(const char* function, Device device, unsigned* count) {
  const GpuCall gpu(function, device, WhenLost::kFail, MigDevice::kSupported);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  return Put(count, 0U);
}

// CLOCK_REALTIME when CLOCK_MONOTONIC was 0. It is read once, so that a sample keeps its timestamp.
std::uint64_t BootUs() {
  static std::atomic<std::uint64_t> boot_us{0};
  std::uint64_t none = 0;
  boot_us.compare_exchange_strong(none, NowUs() - sim::MonotonicNs() / 1000);
  return boot_us.load();
}

// The newest sample of the driver: which processes used the GPU, and when the sample ended.
struct ProcessUseSample {
  explicit ProcessUseSample(const GpuCall& gpu) : list(gpu) {
    if (list.size() == 0) return;
    end_us = BootUs() + (list[0].sample_index + 1) * sim::kSamplePeriodNs / 1000;
    for (unsigned i = 0; i < list.size(); ++i) count += PercentOf(i) != 0 ? 1 : 0;
  }
  // Whole percent of the period; 0: the driver has no sample of the process.
  unsigned PercentOf(unsigned i) const {
    const std::uint64_t percent = list[i].sample_busy_ns * 100 / sim::kSamplePeriodNs;
    return percent > 100 ? 100 : static_cast<unsigned>(percent);
  }
  // kSuccess: the caller has not seen the samples, and has room for them.
  Return CheckRoom(const void* samples, unsigned capacity, std::uint64_t last_seen_us) const {
    if (count == 0 || last_seen_us >= end_us) return Return::kNotFound;
    return samples == nullptr || capacity < count ? Return::kInsufficientSize : Return::kSuccess;
  }

  const ProcessList list;
  unsigned count = 0;  // processes with a sample
  std::uint64_t end_us = 0;
};

Return GetEngineUse(const char* function, Device device, unsigned* percent, unsigned* period_us) {
  const GpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(percent != nullptr && period_us != nullptr);
  *percent = 0;
  *period_us = kEnginePeriodUs;
  return Return::kSuccess;
}

bool SampleOf(const GpuCall& gpu, unsigned type, unsigned* value) {
  const sim::GpuUtilization load = gpu.state().Utilization(gpu.gpu_index());
  switch (type) {
    case kPowerSamples:
      return *value = PowerOf(gpu), true;
    case kGpuSamples:
      return *value = load.gpu, true;
    case kMemorySamples:
      return *value = load.memory, true;
    case kEncoderSamples:
    case kDecoderSamples:
      return *value = 0, true;
    case kCoreClockSamples:
      return ClockOf(gpu, kClockSm, value);
    case kMemoryClockSamples:
      return ClockOf(gpu, kClockMem, value);
    default:
      return false;
  }
}

}  // namespace

Return nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, ProcessInfoV1* infos) {
  return ListComputeProcesses(__func__, device, count, infos);
}
Return nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count, ProcessInfo* infos) {
  return ListComputeProcesses(__func__, device, count, infos);
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* infos) {
  return ListComputeProcesses(__func__, device, count, infos);
}
Return nvmlDeviceGetGraphicsRunningProcesses(Device device, unsigned* count, ProcessInfoV1*) {
  return ListNoProcesses(__func__, device, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v2(Device device, unsigned* count, ProcessInfo*) {
  return ListNoProcesses(__func__, device, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned* count, ProcessInfo*) {
  return ListNoProcesses(__func__, device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses(Device device, unsigned* count, ProcessInfoV1*) {
  return ListNoProcesses(__func__, device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v2(Device device, unsigned* count, ProcessInfo*) {
  return ListNoProcesses(__func__, device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo*) {
  return ListNoProcesses(__func__, device, count);
}

Return nvmlDeviceGetRunningProcessDetailList(Device device, ProcessDetailList* list) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(list != nullptr);
  if (list->version != VersionOf<ProcessDetailList>(1)) return Return::kArgumentVersionMismatch;
  NVML_REQUIRE(list->mode < kDetailModes);
  const unsigned capacity = list->count;
  list->count = 0;
  if (list->mode != kCompute) return Return::kSuccess;
  const ProcessList processes(gpu);
  if (!processes.valid()) return Return::kMemory;
  list->count = processes.size();
  if (capacity < processes.size()) return Return::kInsufficientSize;
  NVML_REQUIRE(list->entries != nullptr || processes.size() == 0);
  for (unsigned i = 0; i < processes.size(); ++i) {
    const InstanceIds ids(gpu, processes[i]);
    list->entries[i] = {static_cast<unsigned>(processes[i].pid), processes[i].bytes,
                        ids.gpu_instance, ids.compute_instance, 0};
  }
  return Return::kSuccess;
}

Return nvmlDeviceGetProcessUtilization(Device device, ProcessUtilizationSample* samples,
                                       unsigned* count, std::uint64_t last_seen) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(count != nullptr);
  if (gpu.state().IsMigEnabled(gpu.gpu_index())) return Return::kNotSupported;
  const ProcessUseSample use(gpu);
  if (!use.list.valid()) return Return::kMemory;
  const unsigned capacity = *count;
  *count = use.count;
  const Return result = use.CheckRoom(samples, capacity, last_seen);
  if (result != Return::kSuccess) return result;
  for (unsigned i = 0; i < use.list.size(); ++i) {
    const unsigned busy = use.PercentOf(i);
    if (busy == 0) continue;
    *samples++ = {static_cast<unsigned>(use.list[i].pid), use.end_us, busy, busy / 2, 0, 0};
  }
  return Return::kSuccess;
}

Return nvmlDeviceGetProcessesUtilizationInfo(Device device, ProcessesUtilizationInfo* info) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(info != nullptr);
  if (info->version != VersionOf<ProcessesUtilizationInfo>(1)) {
    return Return::kArgumentVersionMismatch;
  }
  if (gpu.state().IsMigEnabled(gpu.gpu_index())) return Return::kNotSupported;
  const ProcessUseSample use(gpu);
  if (!use.list.valid()) return Return::kMemory;
  const unsigned capacity = info->count;
  info->count = use.count;
  const Return result = use.CheckRoom(info->entries, capacity, info->last_seen_timestamp);
  if (result != Return::kSuccess) return result;
  ProcessUtilizationInfo* entry = info->entries;
  for (unsigned i = 0; i < use.list.size(); ++i) {
    const unsigned busy = use.PercentOf(i);
    if (busy == 0) continue;
    *entry++ = {use.end_us, static_cast<unsigned>(use.list[i].pid), busy, busy / 2, 0, 0, 0, 0};
  }
  return Return::kSuccess;
}

Return nvmlDeviceGetUtilizationRates(Device device, Utilization* utilization) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(utilization != nullptr);
  if (gpu.state().IsMigEnabled(gpu.gpu_index())) return Return::kNotSupported;
  const sim::GpuUtilization load = gpu.state().Utilization(gpu.gpu_index());
  *utilization = {load.gpu, load.memory};
  return Return::kSuccess;
}

Return nvmlDeviceGetEncoderUtilization(Device device, unsigned* percent, unsigned* period_us) {
  return GetEngineUse(__func__, device, percent, period_us);
}
Return nvmlDeviceGetDecoderUtilization(Device device, unsigned* percent, unsigned* period_us) {
  return GetEngineUse(__func__, device, percent, period_us);
}
Return nvmlDeviceGetJpgUtilization(Device device, unsigned* percent, unsigned* period_us) {
  return GetEngineUse(__func__, device, percent, period_us);
}
Return nvmlDeviceGetOfaUtilization(Device device, unsigned* percent, unsigned* period_us) {
  return GetEngineUse(__func__, device, percent, period_us);
}

Return nvmlDeviceGetEncoderStats(Device device, unsigned* sessions, unsigned* fps,
                                 unsigned* latency) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(sessions != nullptr && fps != nullptr && latency != nullptr);
  *sessions = 0;
  *fps = 0;
  *latency = 0;
  return Return::kSuccess;
}

// The simulation has no encoder and no frame capture.
Return nvmlDeviceGetEncoderSessions(Device device, unsigned* count, void*) {
  NVML_ENTER_DEVICE(gpu, device);
  return Put(count, 0U);
}

Return nvmlDeviceGetEncoderCapacity(Device device, unsigned type, unsigned* percent) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(type < 2);
  return Put(percent, 100U);
}

Return nvmlDeviceGetFBCStats(Device device, FbcStats* stats) {
  NVML_ENTER_DEVICE(gpu, device);
  return Put(stats, FbcStats{});
}

Return nvmlDeviceGetFBCSessions(Device device, unsigned* count, void*) {
  NVML_ENTER_DEVICE(gpu, device);
  return Put(count, 0U);
}

// The real driver keeps a ring of samples; the simulation returns one current sample.
Return nvmlDeviceGetSamples(Device device, unsigned type, std::uint64_t last_seen,
                            unsigned* value_type, unsigned* count, Sample* samples) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(type < kSampleTypes && value_type != nullptr && count != nullptr);
  unsigned value = 0;
  if (!SampleOf(gpu, type, &value)) return Return::kNotSupported;
  const std::uint64_t now = NowUs();
  if (last_seen >= now) return Return::kNotFound;
  *value_type = kValueUnsignedInt;
  if (samples != nullptr) {
    NVML_REQUIRE(*count > 0);
    samples[0] = {now, {}};
    samples[0].value.ui = value;
  }
  *count = 1;
  return Return::kSuccess;
}

NVML_VALUE(nvmlDeviceGetAccountingMode, unsigned, kFeatureDisabled)
NVML_VALUE(nvmlDeviceGetAccountingBufferSize, unsigned, 4000)

// Accounting is always off.
Return nvmlDeviceGetAccountingPids(Device device, unsigned* count, unsigned*) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(count != nullptr);
  return Return::kNotSupported;
}

Return nvmlDeviceGetAccountingStats(Device device, unsigned, AccountingStats* stats) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(stats != nullptr);
  return Return::kNotSupported;
}

}  // namespace tessera::nvml
