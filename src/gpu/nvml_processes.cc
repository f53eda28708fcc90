// SPDX-License-Identifier: Apache-2.0
// The processes on a GPU, and the events by which the driver reports XIDs.
#include <algorithm>
#include <map>

#include "src/gpu/nvml_library_impl.h"

namespace tessera::gpu {
namespace {

// Calls `read(entries, &count, &result)` with growing arrays until all entries fit. A query for
// their number would not help, because processes may start before the second call.
template <typename Entry, typename Read>
Result<std::vector<Entry>> ReadAllEntries(const Read& read) {
  constexpr unsigned kMaxEntries = 1 << 16;
  nvml::Return result = nvml::Return::kInsufficientSize;
  Status status;
  for (unsigned capacity = 64; capacity <= kMaxEntries; capacity *= 4) {
    std::vector<Entry> entries(capacity);
    unsigned count = capacity;
    status = read(entries.data(), &count, &result);
    if (result == nvml::Return::kInsufficientSize) continue;
    if (!status.ok()) return status;
    entries.resize(std::min(count, capacity));
    return entries;
  }
  return status;
}

}  // namespace

Result<std::vector<GpuProcess>> NvmlLibrary::ComputeProcesses(NvmlDevice device) {
  constexpr NvmlCall kCall = NvmlCall::kComputeProcesses;
  const auto function = symbols_.processes;
  if (function == nullptr) return Call(kCall, function, Handle(device), nullptr, nullptr);
  const auto read = [&](nvml::ProcessInfo* entries, unsigned* count, nvml::Return* result) {
    *result = static_cast<nvml::Return>(function(Handle(device), count, entries));
    return NvmlStatus(kCall, static_cast<int>(*result));
  };
  ASSIGN_OR_RETURN(const std::vector<nvml::ProcessInfo> entries,
                   ReadAllEntries<nvml::ProcessInfo>(read));
  std::vector<GpuProcess> processes;
  for (const nvml::ProcessInfo& entry : entries) {
    // The driver does not know the memory of every process, for example on a GPU in WDDM mode.
    const bool known = entry.used_gpu_memory != nvml::kMemoryNotAvailable;
    processes.push_back({.pid = static_cast<int>(entry.pid),
                         .memory = Bytes(known ? static_cast<int64_t>(entry.used_gpu_memory) : 0)});
  }
  return processes;
}

Result<std::vector<ProcessLoad>> NvmlLibrary::ProcessLoads(NvmlDevice device) {
  constexpr NvmlCall kCall = NvmlCall::kProcessUtilization;
  const auto function = symbols_.process_utilization;
  if (function == nullptr) {
    return Call(kCall, function, Handle(device), nullptr, nullptr, std::uint64_t{0});
  }
  const auto read = [&](nvml::ProcessUtilizationSample* entries, unsigned* count,
                        nvml::Return* result) {
    *result = static_cast<nvml::Return>(function(Handle(device), entries, count, std::uint64_t{0}));
    return NvmlStatus(kCall, static_cast<int>(*result));
  };
  auto samples = ReadAllEntries<nvml::ProcessUtilizationSample>(read);
  // NVML_ERROR_NOT_FOUND: the driver has no sample.
  if (samples.status().code() == Code::kNotFound) return std::vector<ProcessLoad>();
  if (!samples.ok()) return samples.status();
  std::ranges::sort(*samples, {}, &nvml::ProcessUtilizationSample::timestamp);
  std::map<unsigned, const nvml::ProcessUtilizationSample*> last;
  for (const nvml::ProcessUtilizationSample& sample : *samples) last[sample.pid] = &sample;
  std::vector<ProcessLoad> loads;
  for (const auto& [pid, sample] : last) {
    // Old drivers leave entries without a process, and invalid percentages.
    if (pid == 0 || sample->sm > 100) continue;
    loads.push_back({.pid = static_cast<int>(pid),
                     .percent = static_cast<int>(sample->sm),
                     .end_us = sample->timestamp});
  }
  return loads;
}

Result<NvmlEventSet> NvmlLibrary::EventSetCreate() {
  nvml::EventSet set = nullptr;
  RETURN_IF_ERROR(Call(NvmlCall::kEventSetCreate, symbols_.event_set_create, &set));
  return static_cast<NvmlEventSet>(set);
}

Status NvmlLibrary::EventSetFree(NvmlEventSet set) {
  return Call(NvmlCall::kEventSetFree, symbols_.event_set_free, EventHandle(set));
}

Status NvmlLibrary::RegisterXidEvents(NvmlDevice device, NvmlEventSet set) {
  std::uint64_t supported = 0;
  RETURN_IF_ERROR(
      Call(NvmlCall::kSupportedEvents, symbols_.supported_events, Handle(device), &supported));
  if ((supported & nvml::kEventXid) == 0) {
    return NvmlStatus(NvmlCall::kRegisterEvents, static_cast<int>(nvml::Return::kNotSupported));
  }
  return Call(NvmlCall::kRegisterEvents, symbols_.register_events, Handle(device),
              static_cast<std::uint64_t>(nvml::kEventXid), EventHandle(set));
}

Result<XidEvent> NvmlLibrary::WaitForXid(NvmlEventSet set, Duration timeout) {
  const auto millis = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  nvml::EventData data{};
  RETURN_IF_ERROR(Call(NvmlCall::kEventSetWait, symbols_.event_set_wait, EventHandle(set), &data,
                       static_cast<unsigned>(millis)));
  if (data.event_type != nvml::kEventXid) {
    return NvmlStatus(NvmlCall::kEventSetWait, static_cast<int>(nvml::Return::kTimeout));
  }
  return XidEvent{.device = data.device, .xid = data.event_data};
}

}  // namespace tessera::gpu
