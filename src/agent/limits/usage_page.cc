// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/usage_page.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "api/names.h"

namespace tessera::agent {
namespace {

std::string LabelsOf(const ContainerGpuUse& use) {
  return MetricLabel("namespace", use.holder.pod_namespace) + "," +
         MetricLabel("pod", use.holder.pod_name) + "," +
         MetricLabel("container", use.holder.container) + "," + MetricLabel("uuid", use.uuid);
}

uint64_t Count(Bytes bytes) { return static_cast<uint64_t>(bytes.count()); }

template <typename Value>
void WriteSamples(const ContainerUses& uses, std::string_view name, MetricsText* text,
                  const Value& value) {
  for (const ContainerGpuUse& use : uses)
    text->AddSample(name, LabelsOf(use), uint64_t{value(use)});
}

std::string_view NameOf(limiter::PriorityClass priority) {
  switch (priority) {
    case limiter::PriorityClass::kHigh:
      return names::kComputeClassHigh;
    case limiter::PriorityClass::kNormal:
      return names::kComputeClassNormal;
    case limiter::PriorityClass::kLow:
      return names::kComputeClassLow;
  }
  return "";
}

// Adds the members that only limited containers have.
void DescribeUse(const ContainerGpuUse& use, Json* memory, Json* json) {
  memory->Set("limit", Json::Int(use.limit.count()));
  memory->Set("used", Json::Int(use.used().count()));
  memory->Set("unaccounted", Json::Int(use.unaccounted.count()));
  memory->Set("peak", Json::Int(use.peak.count()));
  if (use.reported) memory->Set("driver", Json::Int(use.reported->count()));
  const bool is_limited = use.compute_limit.count() != 0;
  if (is_limited || use.compute_use)
    json->Set("class", Json::String(std::string(NameOf(use.compute_class))));
  if (is_limited) json->Set("limit_milli", Json::Int(use.compute_limit.count()));
  if (use.utilization) json->Set("driver_milli", Json::Int(std::lround(1000 * *use.utilization)));
  if (use.compute_use) {
    json->Set("used_milli", Json::Int(std::lround(1000 * use.compute_use->used)));
    json->Set("waiting_milli", Json::Int(std::lround(1000 * use.compute_use->waiting)));
    json->Set(
        "waited_ms",
        Json::Int(
            std::chrono::round<std::chrono::milliseconds>(use.compute_use->waited_for).count()));
  }
  if (use.share_record) {
    json->Set("mean_milli", Json::Int(std::lround(1000 * use.share_record->mean)));
    json->Set("worst_error_milli", Json::Int(std::lround(1000 * use.share_record->worst)));
    if (const auto mean = use.share_record->mean_by_driver)
      json->Set("mean_driver_milli", Json::Int(std::lround(1000 * *mean)));
  }
  json->Set("refused", Json::Int(static_cast<int64_t>(use.refused)));
  json->Set("processes", Json::Int(use.processes));
  json->Set("without_limiter", Json::Int(use.bypassing));
}

void WriteMemory(const ContainerUses& uses, MetricsText* text) {
  text->AddFamily("tessera_container_gpu_memory_limit_bytes", "gauge",
                  "Device memory that a container with a share may use of a GPU.");
  WriteSamples(uses, "tessera_container_gpu_memory_limit_bytes", text,
               [](const ContainerGpuUse& use) { return Count(use.limit); });
  text->AddFamily("tessera_container_gpu_memory_used_bytes", "gauge",
                  "Device memory that counts against the limit, unaccounted memory included.");
  WriteSamples(uses, "tessera_container_gpu_memory_used_bytes", text,
               [](const ContainerGpuUse& use) { return Count(use.used()); });
  text->AddFamily("tessera_container_gpu_memory_peak_bytes", "gauge",
                  "The most that counted against the limit at once since the container started.");
  WriteSamples(uses, "tessera_container_gpu_memory_peak_bytes", text,
               [](const ContainerGpuUse& use) { return Count(use.peak); });
  text->AddFamily("tessera_container_gpu_memory_unaccounted_bytes", "gauge",
                  "Device memory of a container that the driver reports beyond what its limiters "
                  "count and beyond its contexts.");
  WriteSamples(uses, "tessera_container_gpu_memory_unaccounted_bytes", text,
               [](const ContainerGpuUse& use) { return Count(use.unaccounted); });
  text->AddFamily(
      "tessera_container_gpu_memory_driver_bytes", "gauge",
      "Device memory that the driver reports for the processes of a container, contexts "
      "included; missing while the driver does not answer.");
  for (const ContainerGpuUse& use : uses) {
    if (!use.reported) continue;
    text->AddSample("tessera_container_gpu_memory_driver_bytes", LabelsOf(use),
                    Count(*use.reported));
  }
}

void WriteProcesses(const ContainerUses& uses, MetricsText* text) {
  text->AddFamily("tessera_container_gpu_processes_without_limiter", "gauge",
                  "Processes of a container with a share that use the GPU without the limiter.");
  WriteSamples(uses, "tessera_container_gpu_processes_without_limiter", text,
               [](const ContainerGpuUse& use) { return static_cast<uint64_t>(use.bypassing); });
}

void WriteCompute(const ContainerUses& uses, MetricsText* text) {
  text->AddFamily("tessera_container_gpu_compute_limit_ratio", "gauge",
                  "The share of a GPU's compute that a container may use at most, lowered by an "
                  "annotation or raised by tencent.com/vcuda-core-limit; 0: not limited.");
  for (const ContainerGpuUse& use : uses) {
    text->AddSample("tessera_container_gpu_compute_limit_ratio", LabelsOf(use),
                    static_cast<double>(use.compute_limit.count()) / 1000);
  }
  text->AddFamily("tessera_container_gpu_compute_granted_ratio", "gauge",
                  "The share of a GPU's compute that a container was granted; 0: not limited.");
  for (const ContainerGpuUse& use : uses) {
    text->AddSample("tessera_container_gpu_compute_granted_ratio", LabelsOf(use),
                    static_cast<double>(use.compute.count()) / 1000);
  }
  text->AddFamily("tessera_container_gpu_compute_used_ratio", "gauge",
                  "The part of a GPU's compute that a container used in the last second, as its "
                  "limiters measure it; missing where compute is not divided.");
  for (const ContainerGpuUse& use : uses) {
    if (!use.compute_use) continue;
    text->AddSample("tessera_container_gpu_compute_used_ratio", LabelsOf(use),
                    use.compute_use->used);
  }
  text->AddFamily("tessera_container_gpu_compute_driver_ratio", "gauge",
                  "The part of a GPU's compute that a container used in the last second, by the "
                  "driver's samples; missing while the driver does not answer.");
  for (const ContainerGpuUse& use : uses) {
    if (!use.utilization) continue;
    text->AddSample("tessera_container_gpu_compute_driver_ratio", LabelsOf(use), *use.utilization);
  }
  text->AddFamily("tessera_container_gpu_compute_share_error_ratio", "gauge",
                  "The largest error of a container's share of a GPU's compute in a second of the "
                  "last minute: above 0 beyond its limit, below 0 less than its share while its "
                  "threads waited; missing where its compute is not limited.");
  for (const ContainerGpuUse& use : uses) {
    if (!use.share_record) continue;
    text->AddSample("tessera_container_gpu_compute_share_error_ratio", LabelsOf(use),
                    use.share_record->worst);
  }
  text->AddFamily("tessera_container_gpu_compute_wait_seconds_total", "counter",
                  "Time that threads of a container waited for a GPU's compute since it "
                  "started; missing where compute is not divided.");
  for (const ContainerGpuUse& use : uses) {
    if (!use.compute_use) continue;
    text->AddSample("tessera_container_gpu_compute_wait_seconds_total", LabelsOf(use),
                    std::chrono::duration<double>(use.compute_use->waited_for).count());
  }
}

}  // namespace

void WriteContainerUses(const ContainerUses& all, MetricsText* text) {
  text->AddFamily(
      "tessera_container_gpu_limited", "gauge",
      "1: the limiter holds the container to its share of the GPU. 0: isolation was off "
      "when it started.");
  for (const ContainerGpuUse& use : all) {
    if (use.is_read)
      text->AddSample("tessera_container_gpu_limited", LabelsOf(use),
                      uint64_t{use.limited ? 1u : 0u});
  }
  ContainerUses uses;
  std::ranges::copy_if(all, std::back_inserter(uses),
                       [](const ContainerGpuUse& use) { return use.limited && use.is_read; });
  WriteMemory(uses, text);
  WriteProcesses(uses, text);
  WriteCompute(uses, text);
  text->AddFamily(
      "tessera_container_gpu_allocations_refused_total", "counter",
      "Allocations of device memory that the limit refused since the container started.");
  WriteSamples(uses, "tessera_container_gpu_allocations_refused_total", text,
               [](const ContainerGpuUse& use) { return use.refused; });
}

Json JsonOfUses(const std::string& node, const ContainerUses& uses,
                const device::NodeInventory& inventory) {
  Json containers = Json::MakeArray();
  for (const ContainerGpuUse& use : uses) {
    if (!use.is_read) continue;
    Json json = Json::MakeObject({{"namespace", Json::String(use.holder.pod_namespace)},
                                  {"pod", Json::String(use.holder.pod_name)},
                                  {"container", Json::String(use.holder.container)},
                                  {"uuid", Json::String(use.uuid)}});
    if (const device::Gpu* gpu = inventory.Find(use.uuid)) json.Set("index", Json::Int(gpu->index));
    json.Set("limited", Json::Bool(use.limited));
    json.Set("milli", Json::Int(use.compute.count()));
    Json memory = Json::MakeObject({{"granted", Json::Int(use.granted.count())}});
    if (use.limited) DescribeUse(use, &memory, &json);
    json.Set("memory", std::move(memory));
    containers.Append(std::move(json));
  }
  const bool complete = std::ranges::all_of(uses, &ContainerGpuUse::is_read);
  return Json::MakeObject({{"node", Json::String(node)},
                           {"containers", std::move(containers)},
                           {"complete", Json::Bool(complete)}});
}

}  // namespace tessera::agent
