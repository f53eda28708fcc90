// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/gpu_sample.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "api/nvml_abi.h"

namespace tessera::agent {
namespace {

// Drivers report higher values if the memory has no sensor.
constexpr double kMaxMemoryCelsius = 200;

// "0000:0f:00.0" as NVML and DCGM spell it: "00000000:0F:00.0".
std::string DcgmBusId(const std::string& bus_id) {
  std::string text = bus_id.find(':') == 4 ? "0000" + bus_id : bus_id;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

}  // namespace

GpuReader::GpuReader(gpu::Nvml* nvml, int index, std::shared_ptr<const CounterSpecs> counters)
    : nvml_(nvml), index_(index), counters_(std::move(counters)) {
  for (const CounterSpec& counter : *counters_) {
    const Field& field = *counter.field;
    sources_.insert(field.source);
    if (field.source == FieldSource::kField) field_queries_.push_back({.field = field.id});
    if (field.source == FieldSource::kFieldPair) {
      field_queries_.push_back({.field = field.id, .scope = gpu::kAllLinks});
      field_queries_.push_back({.field = field.id + 1, .scope = gpu::kAllLinks});
    }
    if (field.source == FieldSource::kGpm) gpm_metrics_.push_back(field.id);
  }
  // ContainerMeter needs the energy and the use, whatever the counters are. ReadFields expects the
  // query of the energy after the queries of the counters.
  field_queries_.push_back({.field = nvml::kFieldTotalEnergy});
  sources_.insert(FieldSource::kGpuPercent);
}

template <typename T>
std::optional<T> GpuReader::ValueOrRecord(Result<T> result) {
  unsupported_ = result.status().code() == Code::kUnimplemented;
  answered_ |= result.ok() || unsupported_;
  if (result.ok()) return *std::move(result);
  if (!unsupported_) problem_ = result.status();
  return std::nullopt;
}

Status GpuReader::Identify() {
  if (device_ != nullptr) return Status::Ok();
  ASSIGN_OR_RETURN(const gpu::NvmlDevice device, nvml_->HandleByIndex(index_));
  GpuSample identity{.index = index_};
  ASSIGN_OR_RETURN(identity.uuid, nvml_->Uuid(device));
  ASSIGN_OR_RETURN(identity.model, nvml_->Name(device));
  ASSIGN_OR_RETURN(identity.pci_bus_id, nvml_->PciBusId(device));
  identity.pci_bus_id = DcgmBusId(identity.pci_bus_id);
  device_ = device;
  identity.texts.resize(counters_->size());
  for (size_t i = 0; i < counters_->size(); ++i) {
    const FieldSource source = (*counters_)[i].field->source;
    if (IsText(source)) identity.texts[i] = ReadText(source);
  }
  identity_ = std::move(identity);
  return Status::Ok();
}

Result<GpuSample> GpuReader::Read() {
  problem_ = Status::Ok();
  RETURN_IF_ERROR(Identify());
  answered_ = false;
  GpuSample sample = identity_;
  sample.numbers.resize(counters_->size());
  ReadMemory(&sample.numbers);
  ReadFields(&sample);
  ReadGpm(&sample.numbers);
  std::optional<gpu::UtilizationRates> rates;
  if (Wants(FieldSource::kGpuPercent) || Wants(FieldSource::kMemoryPercent)) {
    rates = ValueOrRecord(nvml_->Utilization(device_));
    if (unsupported_) {
      sources_.erase(FieldSource::kGpuPercent);
      sources_.erase(FieldSource::kMemoryPercent);
    }
  }
  if (rates) sample.busy_fraction = rates->gpu / 100.0;
  for (size_t i = 0; i < counters_->size(); ++i) {
    const Field& field = *(*counters_)[i].field;
    std::optional<double>& number = sample.numbers[i];
    if (field.source == FieldSource::kGpuPercent && rates) number = rates->gpu;
    if (field.source == FieldSource::kMemoryPercent && rates) number = rates->memory;
    if (!number && Wants(field.source)) {
      number = ReadNumber(field.source);
      if (std::exchange(unsupported_, false)) sources_.erase(field.source);
    }
    if (number) *number *= field.factor;
  }
  if (problem_.code() == Code::kFailedPrecondition) return problem_;
  if (!answered_ && !problem_.ok()) return problem_;
  return sample;
}

std::optional<double> GpuReader::ReadNumber(FieldSource source) {
  unsupported_ = false;
  switch (source) {
    case FieldSource::kSmClock:
      return ValueOrRecord(nvml_->ClockMhz(device_, gpu::ClockDomain::kSm));
    case FieldSource::kMemoryClock:
      return ValueOrRecord(nvml_->ClockMhz(device_, gpu::ClockDomain::kMemory));
    case FieldSource::kTemperature:
      return ValueOrRecord(nvml_->TemperatureCelsius(device_));
    case FieldSource::kPower:
      return ValueOrRecord(nvml_->PowerMilliwatts(device_));
    case FieldSource::kEncoderPercent:
      return ValueOrRecord(nvml_->EncoderPercent(device_));
    case FieldSource::kDecoderPercent:
      return ValueOrRecord(nvml_->DecoderPercent(device_));
    case FieldSource::kPcieReplays:
      return ValueOrRecord(nvml_->PcieReplays(device_));
    default:
      return std::nullopt;  // read together with others, or not from the GPU
  }
}

void GpuReader::ReadMemory(std::vector<std::optional<double>>* numbers) {
  const bool wanted = std::ranges::any_of(*counters_, [](const CounterSpec& counter) {
    return counter.field->source >= FieldSource::kMemoryTotal &&
           counter.field->source <= FieldSource::kMemoryUsedRatio;
  });
  if (!wanted) return;
  const std::optional<gpu::MemoryUse> memory = ValueOrRecord(nvml_->Memory(device_));
  if (!memory) return;
  const auto bytes = [](Bytes count) { return static_cast<double>(count.count()); };
  for (size_t i = 0; i < counters_->size(); ++i) {
    std::optional<double>& number = (*numbers)[i];
    switch ((*counters_)[i].field->source) {
      case FieldSource::kMemoryTotal:
        number = bytes(memory->total);
        break;
      case FieldSource::kMemoryFree:
        number = bytes(memory->free);
        break;
      case FieldSource::kMemoryUsed:
        number = bytes(memory->used);
        break;
      case FieldSource::kMemoryReserved:
        if (memory->reserved) number = bytes(*memory->reserved);
        break;
      case FieldSource::kMemoryUsedRatio: {
        const Bytes usable = memory->total - memory->reserved.value_or(Bytes(0));
        if (usable > Bytes(0)) number = bytes(memory->used) / bytes(usable);
        break;
      }
      default:
        break;
    }
  }
}

void GpuReader::ReadFields(GpuSample* sample) {
  if (field_queries_.empty()) return;
  const auto values = ValueOrRecord(nvml_->FieldValues(device_, field_queries_));
  if (unsupported_) field_queries_.clear();
  if (!values) return;
  // The queries are in the order of the counters.
  size_t next = 0;
  for (size_t i = 0; i < counters_->size(); ++i) {
    const Field& field = *(*counters_)[i].field;
    std::optional<double>& number = sample->numbers[i];
    if (field.source == FieldSource::kField) {
      number = (*values)[next++];
      const bool is_memory_temperature = field.id == nvml::kFieldMemoryTemp;
      if (is_memory_temperature && number && *number > kMaxMemoryCelsius) number.reset();
    } else if (field.source == FieldSource::kFieldPair) {
      const std::optional<double> first = (*values)[next++], second = (*values)[next++];
      if (first && second) number = *first + *second;
    }
  }
  const std::optional<double> energy = values->back();
  if (energy) sample->energy_mj = static_cast<uint64_t>(*energy);
}

void GpuReader::ReadGpm(std::vector<std::optional<double>>* numbers) {
  if (gpm_metrics_.empty()) return;
  auto sample = ValueOrRecord(nvml_->TakeGpmSample(device_));
  if (unsupported_) gpm_metrics_.clear();
  if (!sample) return;
  const std::unique_ptr<gpu::GpmSample> before = std::exchange(gpm_before_, *std::move(sample));
  // A metric is the mean between two samples, so the first sample gives none.
  if (before == nullptr) return;
  const auto values = ValueOrRecord(nvml_->GpmMetrics(*before, *gpm_before_, gpm_metrics_));
  if (!values) return;
  size_t next = 0;
  for (size_t i = 0; i < counters_->size(); ++i) {
    if ((*counters_)[i].field->source == FieldSource::kGpm) (*numbers)[i] = (*values)[next++];
  }
}

std::string GpuReader::ReadText(FieldSource source) {
  switch (source) {
    case FieldSource::kDriverVersion:
      return nvml_->DriverVersion().value_or("");
    case FieldSource::kNvmlVersion:
      return nvml_->NvmlVersion().value_or("");
    case FieldSource::kSerial:
      return nvml_->Serial(device_).value_or("");
    case FieldSource::kVbiosVersion:
      return nvml_->VbiosVersion(device_).value_or("");
    default:
      return "";
  }
}

}  // namespace tessera::agent
