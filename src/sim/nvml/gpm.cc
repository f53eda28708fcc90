// SPDX-License-Identifier: Apache-2.0
// GPU performance monitoring, for Hopper and later: a client takes two samples of a GPU and reads
// rates between them. A sample is the GPU's busy time so far. The simulation knows the duration of
// kernels, but not their instructions, so pipes, engines and links read 0.
#include <array>
#include <new>

#include "src/sim/nvml/session.h"

namespace tessera::nvml {

struct GpmSampleTag {
  std::uint64_t magic;
  std::uint32_t gpu;
  std::uint64_t time_ns;  // CLOCK_MONOTONIC; 0: no sample yet
  std::uint64_t busy_ns;
};

namespace {

constexpr std::uint64_t kLiveSample = 0x7465737347504D;
constexpr unsigned kVersion = 1;

enum class GpmSource : std::uint8_t { kBusy, kMemory, kZero };

// The metrics `first` to `last`, by NVML's numbers.
struct MetricRange {
  unsigned first, last;
  GpmSource source;
  const char* short_name;
  const char* long_name;
  const char* unit;
};

constexpr std::array kMetrics = {
    MetricRange{1, 1, GpmSource::kBusy, "gract", "Graphics Engine Utilization", "%"},
    MetricRange{2, 2, GpmSource::kBusy, "smutil", "SM Utilization", "%"},
    MetricRange{3, 3, GpmSource::kBusy, "smocc", "SM Occupancy", "%"},
    MetricRange{4, 4, GpmSource::kZero, "intutil", "Integer Utilization", "%"},
    MetricRange{5, 5, GpmSource::kZero, "mmaact", "Tensor Core Utilization", "%"},
    MetricRange{6, 7, GpmSource::kZero, nullptr, nullptr, "%"},
    MetricRange{9, 9, GpmSource::kZero, nullptr, nullptr, "%"},
    MetricRange{10, 10, GpmSource::kMemory, "dram", "DRAM Bandwidth Utilization", "%"},
    MetricRange{11, 11, GpmSource::kZero, "fp64", "FP64 Utilization", "%"},
    MetricRange{12, 12, GpmSource::kZero, "fp32", "FP32 Utilization", "%"},
    MetricRange{13, 13, GpmSource::kZero, "fp16", "FP16 Utilization", "%"},
    MetricRange{20, 20, GpmSource::kZero, "pcitx", "PCIe Transmitted", "MiB/s"},
    MetricRange{21, 21, GpmSource::kZero, "pcirx", "PCIe Received", "MiB/s"},
    MetricRange{30, 37, GpmSource::kZero, nullptr, nullptr, "%"},
    MetricRange{40, 47, GpmSource::kZero, nullptr, nullptr, "%"},
    MetricRange{50, 51, GpmSource::kZero, nullptr, nullptr, "%"},
    MetricRange{60, 60, GpmSource::kZero, "nvlrx", "NVLink Received", "MiB/s"},
    MetricRange{61, 61, GpmSource::kZero, "nvltx", "NVLink Transmitted", "MiB/s"},
    MetricRange{62, 97, GpmSource::kZero, nullptr, nullptr, "MiB/s"}};

bool IsLive(GpmSample sample) { return sample != nullptr && sample->magic == kLiveSample; }

bool IsSupported(const GpuCall& gpu) { return gpu.at_least(kArchHopper); }

// Busy time of the whole GPU between the samples, in percent. Injected values take precedence, as
// in State::Utilization.
double BusyPercent(const sim::State& state, const GpmSampleTag& earlier,
                   const GpmSampleTag& later) {
  const std::uint32_t injected = state.file().gpu_states[later.gpu].utilization_gpu.load();
  if (injected != sim::kDerived) return injected;
  const double busy = static_cast<double>(later.busy_ns - earlier.busy_ns) * 100;
  const double percent = busy / static_cast<double>(later.time_ns - earlier.time_ns);
  return percent < 100 ? percent : 100;
}

// Half of the busy time, as in State::Utilization.
double MemoryPercent(const sim::State& state, const GpmSampleTag& later, double busy) {
  const std::uint32_t injected = state.file().gpu_states[later.gpu].utilization_memory.load();
  return injected != sim::kDerived ? injected : busy / 2;
}

void Fill(const sim::State& state, const GpmMetrics& samples, GpmMetric* metric) {
  metric->result = Return::kNotSupported;
  for (const MetricRange& entry : kMetrics) {
    if (metric->id < entry.first || metric->id > entry.last) continue;
    const double busy = BusyPercent(state, *samples.earlier, *samples.later);
    metric->result = Return::kSuccess;
    metric->value = entry.source == GpmSource::kBusy ? busy
                    : entry.source == GpmSource::kMemory
                        ? MemoryPercent(state, *samples.later, busy)
                        : 0;
    metric->short_name = entry.short_name;
    metric->long_name = entry.long_name;
    metric->unit = entry.unit;
  }
}

}  // namespace

Return nvmlGpmQueryDeviceSupport(Device device, GpmSupport* support) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(support != nullptr);
  if (support->version != kVersion) return Return::kArgumentVersionMismatch;
  support->is_supported = IsSupported(gpu) ? 1 : 0;
  return Return::kSuccess;
}

Return nvmlGpmQueryIfStreamingEnabled(Device device, unsigned* state) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(state != nullptr);
  if (!IsSupported(gpu)) return Return::kNotSupported;
  return Put(state, kFeatureDisabled);
}

Return nvmlGpmSampleAlloc(GpmSample* sample) {
  NVML_ENTER(call);
  NVML_REQUIRE(sample != nullptr);
  auto* created = new (std::nothrow) GpmSampleTag{};
  if (created == nullptr) return Return::kMemory;
  created->magic = kLiveSample;
  *sample = created;
  return Return::kSuccess;
}

Return nvmlGpmSampleFree(GpmSample sample) {
  NVML_ENTER(call);
  NVML_REQUIRE(IsLive(sample));
  sample->magic = 0;
  delete sample;
  return Return::kSuccess;
}

Return nvmlGpmSampleGet(Device device, GpmSample sample) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(IsLive(sample));
  if (!IsSupported(gpu)) return Return::kNotSupported;
  sample->gpu = gpu.gpu_index();
  sample->time_ns = sim::MonotonicNs();
  sample->busy_ns = gpu.state().BusyNs(gpu.gpu_index());
  return Return::kSuccess;
}

Return nvmlGpmMetricsGet(GpmMetrics* metrics) {
  NVML_ENTER(call);
  NVML_REQUIRE(metrics != nullptr);
  if (metrics->version != kVersion) return Return::kArgumentVersionMismatch;
  NVML_REQUIRE(IsLive(metrics->earlier) && IsLive(metrics->later));
  const GpmSampleTag& earlier = *metrics->earlier;
  const GpmSampleTag& later = *metrics->later;
  NVML_REQUIRE(earlier.gpu == later.gpu && earlier.time_ns != 0 && earlier.time_ns < later.time_ns);
  for (unsigned i = 0; i < metrics->count; ++i) {
    Fill(call.state(), *metrics, &metrics->metrics[i]);
  }
  return Return::kSuccess;
}

}  // namespace tessera::nvml
