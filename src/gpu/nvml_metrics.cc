// SPDX-License-Identifier: Apache-2.0
// The state of a GPU at one moment, for metrics.
#include <cmath>

#include "src/gpu/nvml_library_impl.h"

namespace tessera::gpu {
namespace {

class LibraryGpmSample final : public GpmSample {
 public:
  LibraryGpmSample(nvml::GpmSample sample, nvml::fn::nvmlGpmSampleFree free)
      : sample_(sample), free_(free) {}
  ~LibraryGpmSample() override { (void)free_(sample_); }
  nvml::GpmSample get() const { return sample_; }

 private:
  const nvml::GpmSample sample_;
  const nvml::fn::nvmlGpmSampleFree free_;
};

double NumberOf(const nvml::FieldValue& field) {
  // Driver 545 reports a wrong type for this field.
  if (field.field_id == nvml::kFieldMemoryTemp) return field.value.ui;
  switch (field.value_type) {
    case nvml::kValueDouble:
      return field.value.d;
    case nvml::kValueUnsignedInt:
      return field.value.ui;
    case nvml::kValueUnsignedLong:
      return static_cast<double>(field.value.ul);
    case nvml::kValueUnsignedLongLong:
      return static_cast<double>(field.value.ull);
    case nvml::kValueSignedLongLong:
      return static_cast<double>(field.value.sll);
    case nvml::kValueSignedInt:
      return field.value.si;
    case nvml::kValueUnsignedShort:
      return field.value.us;
    default:
      return NAN;
  }
}

template <typename Function>
Result<int> CodecPercent(NvmlCall call, Function function, NvmlDevice device) {
  unsigned percent = 0;
  unsigned period_us = 0;
  RETURN_IF_ERROR(Call(call, function, Handle(device), &percent, &period_us));
  return static_cast<int>(percent);
}

}  // namespace

Result<int> NvmlLibrary::ClockMhz(NvmlDevice device, ClockDomain domain) {
  return ReadNumber(NvmlCall::kClockInfo, symbols_.clock_info, Handle(device),
                    domain == ClockDomain::kSm ? nvml::kClockSm : nvml::kClockMem);
}

Result<int> NvmlLibrary::TemperatureCelsius(NvmlDevice device) {
  constexpr unsigned kGpuSensor = 0;  // the only sensor that this call knows
  return ReadNumber(NvmlCall::kTemperature, symbols_.temperature, Handle(device), kGpuSensor);
}

Result<int> NvmlLibrary::PowerMilliwatts(NvmlDevice device) {
  return ReadNumber(NvmlCall::kPowerUsage, symbols_.power_usage, Handle(device));
}

Result<UtilizationRates> NvmlLibrary::Utilization(NvmlDevice device) {
  nvml::Utilization rates{};
  RETURN_IF_ERROR(Call(NvmlCall::kUtilization, symbols_.utilization, Handle(device), &rates));
  return UtilizationRates{static_cast<int>(rates.gpu), static_cast<int>(rates.memory)};
}

Result<int> NvmlLibrary::EncoderPercent(NvmlDevice device) {
  return CodecPercent(NvmlCall::kEncoderUtilization, symbols_.encoder_utilization, device);
}

Result<int> NvmlLibrary::DecoderPercent(NvmlDevice device) {
  return CodecPercent(NvmlCall::kDecoderUtilization, symbols_.decoder_utilization, device);
}

Result<int64_t> NvmlLibrary::PcieReplays(NvmlDevice device) {
  unsigned count = 0;
  RETURN_IF_ERROR(Call(NvmlCall::kPcieReplays, symbols_.pcie_replays, Handle(device), &count));
  return int64_t{count};
}

Result<MemoryUse> NvmlLibrary::Memory(NvmlDevice device) {
  const auto bytes = [](std::uint64_t count) { return Bytes(static_cast<int64_t>(count)); };
  nvml::MemoryV2 memory{.version = nvml::VersionOf<nvml::MemoryV2>(2)};
  const Status status =
      Call(NvmlCall::kMemoryInfoV2, symbols_.memory_info_v2, Handle(device), &memory);
  if (status.ok()) {
    return MemoryUse{bytes(memory.total), bytes(memory.free), bytes(memory.used),
                     bytes(memory.reserved)};
  }
  if (status.code() != Code::kUnimplemented) return status;
  // Drivers before 510 lack the newer call, and their `used` includes what the driver reserves.
  nvml::Memory older{};
  RETURN_IF_ERROR(Call(NvmlCall::kMemoryInfo, symbols_.memory_info, Handle(device), &older));
  return MemoryUse{bytes(older.total), bytes(older.free), bytes(older.used), std::nullopt};
}

Result<std::vector<std::optional<double>>> NvmlLibrary::FieldValues(
    NvmlDevice device, std::span<const FieldQuery> queries) {
  std::vector<nvml::FieldValue> fields(queries.size());
  for (size_t i = 0; i < queries.size(); ++i) {
    fields[i].field_id = queries[i].field;
    fields[i].scope_id = queries[i].scope;
  }
  RETURN_IF_ERROR(Call(NvmlCall::kFieldValues, symbols_.field_values, Handle(device),
                       static_cast<int>(fields.size()), fields.data()));
  std::vector<std::optional<double>> values(queries.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    // The call succeeds if any field succeeds; each field has its own result. On a lost GPU all
    // fields fail.
    const Status status = NvmlStatus(NvmlCall::kFieldValues, static_cast<int>(fields[i].result));
    if (status.code() == Code::kDataLoss) return status;
    const double number = NumberOf(fields[i]);
    if (status.ok() && !std::isnan(number)) values[i] = number;
  }
  return values;
}

Result<std::unique_ptr<GpmSample>> NvmlLibrary::TakeGpmSample(NvmlDevice device) {
  nvml::GpmSupport support{.version = 1};
  RETURN_IF_ERROR(Call(NvmlCall::kGpmSupport, symbols_.gpm_support, Handle(device), &support));
  const bool complete = symbols_.gpm_sample_free != nullptr && symbols_.gpm_sample_get != nullptr;
  if (support.is_supported == 0 || !complete) {
    return NvmlStatus(NvmlCall::kGpmSupport, static_cast<int>(nvml::Return::kNotSupported));
  }
  nvml::GpmSample raw = nullptr;
  RETURN_IF_ERROR(Call(NvmlCall::kGpmSampleGet, symbols_.gpm_sample_alloc, &raw));
  auto sample = std::make_unique<LibraryGpmSample>(raw, symbols_.gpm_sample_free);
  RETURN_IF_ERROR(Call(NvmlCall::kGpmSampleGet, symbols_.gpm_sample_get, Handle(device), raw));
  return std::unique_ptr<GpmSample>(std::move(sample));
}

Result<std::vector<std::optional<double>>> NvmlLibrary::GpmMetrics(
    const GpmSample& earlier, const GpmSample& later, std::span<const unsigned> metrics) {
  // The library's struct has room for all metrics of its version, which are at most this many.
  constexpr size_t kMaxMetrics = 512;
  TESSERA_CHECK(metrics.size() <= kMaxMetrics);
  std::vector<std::uint64_t> memory(
      (offsetof(nvml::GpmMetrics, metrics) + kMaxMetrics * sizeof(nvml::GpmMetric)) /
      sizeof(std::uint64_t));
  auto* request = reinterpret_cast<nvml::GpmMetrics*>(memory.data());
  nvml::GpmMetric* entries = request->metrics;
  request->version = 1;
  request->count = static_cast<unsigned>(metrics.size());
  request->earlier = static_cast<const LibraryGpmSample&>(earlier).get();
  request->later = static_cast<const LibraryGpmSample&>(later).get();
  for (size_t i = 0; i < metrics.size(); ++i) entries[i].id = metrics[i];
  RETURN_IF_ERROR(Call(NvmlCall::kGpmMetrics, symbols_.gpm_metrics, request));
  std::vector<std::optional<double>> values(metrics.size());
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (entries[i].result == nvml::Return::kSuccess && std::isfinite(entries[i].value)) {
      values[i] = entries[i].value;
    }
  }
  return values;
}

}  // namespace tessera::gpu
