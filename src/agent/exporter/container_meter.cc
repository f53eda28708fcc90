// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/container_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tessera::agent {
namespace {

double SecondsOf(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double JoulesOf(uint64_t millijoules) { return static_cast<double>(millijoules) / 1000; }

// The fraction of the GPU's time that the container used since the last reading.
std::optional<double> UseOf(const ContainerMeter::ContainerRecord& record,
                            const ContainerMeter::MeteredGpu& gpu,
                            const ContainerMeter::Reading& reading) {
  if (record.reports > 0) return record.use_sum / record.reports;
  if (record.last_use) return record.last_use;
  return gpu.containers.size() == 1 ? reading.use : std::nullopt;
}

std::string LabelsOf(const ContainerName& holder, const std::string& uuid) {
  return MetricLabel("namespace", holder.pod_namespace) + "," + MetricLabel("pod", holder.pod) +
         "," + MetricLabel("container", holder.container) + "," + MetricLabel("uuid", uuid);
}

template <typename Value>
void WriteRecords(const std::map<std::string, ContainerMeter::MeteredGpu>& gpus,
                  std::string_view name, MetricsText* text, const Value& value_of) {
  for (const auto& [uuid, gpu] : gpus) {
    for (const auto& [holder, record] : gpu.containers) {
      const std::optional<double> value = value_of(record);
      if (value) text->AddSample(name, LabelsOf(holder, uuid), *value);
    }
  }
}

}  // namespace

void ContainerMeter::SetHolders(MonotonicTime now, const Holdings& holdings) {
  std::map<std::string, std::map<ContainerName, ContainerRecord>> held;
  for (const HeldContainer& container : holdings.containers) {
    if (container.ended || !container.holder.owner_known()) continue;
    const ContainerName holder = NameOf(container.holder);
    for (const device::DeviceShare& share : container.shares) {
      held[share.uuid].try_emplace(holder, ContainerRecord{.since = now, .until = now});
    }
  }
  for (auto& [uuid, gpu] : gpus_) {
    auto& next = held[uuid];
    for (auto& [holder, record] : gpu.containers) {
      const auto continued = next.find(holder);
      if (continued == next.end()) continue;
      record.until = std::max(record.until, now);
      continued->second = record;
    }
  }
  for (auto& [uuid, containers] : held) gpus_[uuid].containers = std::move(containers);
  std::erase_if(
      gpus_, [](const auto& gpu) { return gpu.second.containers.empty() && !gpu.second.read_at; });
}

void ContainerMeter::AddUses(const ContainerUses& uses) {
  for (auto& [uuid, gpu] : gpus_) {
    for (auto& [holder, record] : gpu.containers) record.last_use.reset();
  }
  for (const ContainerGpuUse& use : uses) {
    const auto gpu = gpus_.find(use.uuid);
    if (gpu == gpus_.end()) continue;
    const auto record = gpu->second.containers.find(NameOf(use.holder));
    const std::optional<double> percent = PercentOf(use);
    if (record == gpu->second.containers.end() || !percent) continue;
    record->second.last_use = *percent / 100;
    record->second.use_sum += *percent / 100;
    ++record->second.reports;
    // NVML reports whole percents, so a use of 0 does not prove that no kernel ran. The limiter's
    // count is exact.
    record->second.ran_kernel |= *percent > 0 || (use.compute_use && use.compute_use->used > 0);
  }
}

void ContainerMeter::AddReading(const std::string& uuid, const Reading& reading) {
  MeteredGpu& gpu = gpus_[uuid];
  if (gpu.read_at && reading.at <= *gpu.read_at) return;
  for (auto& [holder, record] : gpu.containers) record.until = std::max(record.until, reading.at);
  AddIdle(reading, &gpu);
  if (reading.energy_mj) {
    const uint64_t before = gpu.energy_mj.value_or(*reading.energy_mj);
    // The counter starts at 0 when the driver is loaded.
    const bool was_reset = *reading.energy_mj < before;
    if (!gpu.rest_mj) gpu.rest_mj = 0;
    DivideEnergy(*reading.energy_mj - (was_reset ? 0 : before), reading, &gpu);
    gpu.energy_mj = reading.energy_mj;
  }
  for (auto& [holder, record] : gpu.containers) {
    record.use_sum = record.reports = 0;
    record.ran_kernel = false;
  }
  gpu.read_at = reading.at;
}

void ContainerMeter::DivideEnergy(uint64_t energy_mj, const Reading& reading,
                                  MeteredGpu* gpu) const {
  std::vector<ContainerRecord*> users;
  std::vector<int64_t> parts;
  for (auto& [holder, record] : gpu->containers) {
    const std::optional<double> use = UseOf(record, *gpu, reading);
    if (!use) continue;
    users.push_back(&record);
    parts.push_back(std::llround(*use * static_cast<double>(energy_mj)));
  }
  parts = PartsAndRest(static_cast<int64_t>(energy_mj), std::move(parts));
  for (size_t i = 0; i < users.size(); ++i) {
    users[i]->energy_mj = users[i]->energy_mj.value_or(0) + static_cast<uint64_t>(parts[i]);
  }
  *gpu->rest_mj += static_cast<uint64_t>(parts.back());
}

void ContainerMeter::AddIdle(const Reading& reading, MeteredGpu* gpu) const {
  for (auto& [holder, record] : gpu->containers) {
    // If the GPU was idle, all of its containers were idle.
    std::optional<double> use = UseOf(record, *gpu, reading);
    if (!use && reading.use == 0) use = 0;
    if (!use) continue;
    if (!record.idle_time) record.idle_time = Duration::zero();
    const bool is_continuous = gpu->read_at && reading.at - *gpu->read_at <= max_reading_interval_;
    if (*use > 0 || record.ran_kernel || !is_continuous) continue;
    *record.idle_time += reading.at - std::max(*gpu->read_at, std::min(record.since, reading.at));
  }
}

void ContainerMeter::Write(MetricsText* text) const {
  const auto seconds = [](std::optional<Duration> time) {
    return time ? std::optional(SecondsOf(*time)) : std::nullopt;
  };
  text->AddFamily("tessera_container_gpu_allocated_seconds_total", "counter",
                  "Time that a container has held a GPU, or a share of it.");
  WriteRecords(gpus_, "tessera_container_gpu_allocated_seconds_total", text,
               [&](const ContainerRecord& record) { return seconds(record.allocated()); });
  text->AddFamily(
      "tessera_container_gpu_idle_seconds_total", "counter",
      "Time that a container has held a GPU without running a kernel on it; missing if the "
      "container's use is unknown.");
  WriteRecords(gpus_, "tessera_container_gpu_idle_seconds_total", text,
               [&](const ContainerRecord& record) { return seconds(record.idle_time); });
  text->AddFamily(
      "tessera_container_gpu_energy_joules_total", "counter",
      "Energy of a GPU, split between its containers by the GPU time that each used. The "
      "series without a pod has the rest. Missing where the GPU has no energy counter.");
  WriteRecords(
      gpus_, "tessera_container_gpu_energy_joules_total", text, [](const ContainerRecord& record) {
        return record.energy_mj ? std::optional(JoulesOf(*record.energy_mj)) : std::nullopt;
      });
  for (const auto& [uuid, gpu] : gpus_) {
    if (!gpu.rest_mj) continue;
    text->AddSample("tessera_container_gpu_energy_joules_total", MetricLabel("uuid", uuid),
                    JoulesOf(*gpu.rest_mj));
  }
}

}  // namespace tessera::agent
