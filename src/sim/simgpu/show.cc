// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "src/formats/json.h"
#include "src/sim/simgpu/pci_files.h"

namespace tessera::sim {
namespace {

std::vector<ProcessView> ProcessesOf(State* state, uint32_t gpu) {
  std::vector<ProcessView> views(kMaxSlots);
  views.resize(std::min(state->Processes(gpu, views.data(), kMaxSlots), kMaxSlots));
  return views;
}

// Links as text: "GPU1 x12, GPU2 x4" or "NVSwitch x12".
std::string LinksOf(const GpuFacts& gpu) {
  std::map<std::string, int> peers;
  for (const NvLink& link : gpu.links) {
    if (link.active == 0) continue;
    ++peers[link.remote_gpu < 0 ? "NVSwitch" : fmt::format("GPU{}", link.remote_gpu)];
  }
  std::string text;
  for (const auto& [peer, count] : peers) {
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", peer, count);
  }
  return text.empty() ? "none" : text;
}

Json GpuJson(State* state, uint32_t index) {
  const GpuFacts& gpu = state->facts(index);
  SimGpuState& gpu_state = state->gpu_state(index);
  Json json = Json::MakeObject();
  json.Set("index", Json::Int(index));
  json.Set("uuid", Json::String(gpu.uuid));
  json.Set("name", Json::String(gpu.name));
  json.Set("minor", Json::Int(gpu.minor));
  json.Set("pci", Json::String(PciAddressText(gpu.pci)));
  json.Set("numa_node", Json::Int(gpu.numa_node));
  json.Set("memory_bytes", Json::Int(int64_t(gpu.memory_bytes)));
  json.Set("reserved_bytes", Json::Int(int64_t(gpu.reserved_bytes)));
  json.Set("used_bytes", Json::Int(int64_t(state->UsedBytes(index))));
  json.Set("utilization", Json::Int(state->Utilization(index).gpu));
  json.Set("lost", Json::Bool(gpu_state.lost != 0));
  json.Set("recovery_action", Json::Int(gpu_state.recovery_action));
  json.Set("ecc_corrected", Json::Int(int64_t(gpu_state.ecc_corrected_volatile.load())));
  json.Set("ecc_uncorrected", Json::Int(int64_t(gpu_state.ecc_uncorrected_volatile.load())));
  const bool has_rows = gpu.row_banks != 0;
  json.Set("repaired", Json::String(has_rows ? "rows" : "pages"));
  json.Set("repaired_corrected",
           Json::Int(int64_t(
               (has_rows ? gpu_state.remapped_corrected : gpu_state.retired_corrected).load())));
  json.Set(
      "repaired_uncorrected",
      Json::Int(int64_t(
          (has_rows ? gpu_state.remapped_uncorrected : gpu_state.retired_uncorrected).load())));
  json.Set("repair_pending",
           Json::Bool(gpu_state.remapped_pending != 0 || gpu_state.retired_pending != 0));
  json.Set("repair_failed", Json::Bool(gpu_state.remapped_failed != 0));
  json.Set("nvlinks", Json::String(LinksOf(gpu)));
  Json processes = Json::MakeArray();
  for (const ProcessView& view : ProcessesOf(state, index)) {
    Json process = Json::MakeObject();
    process.Set("pid", Json::Int(view.pid));
    process.Set("name", Json::String(view.name));
    process.Set("bytes", Json::Int(int64_t(view.bytes)));
    process.Set("contexts", Json::Int(view.contexts));
    process.Set("busy_ns", Json::Int(int64_t(view.busy_ns)));
    processes.Append(std::move(process));
  }
  json.Set("processes", std::move(processes));
  return json;
}

// The compute instances of a GPU in the order of MIG devices.
std::vector<uint32_t> InstancesOf(const State& state, uint32_t gpu) {
  std::vector<uint32_t> instances;
  for (uint32_t rank = 0; rank < kMaxInstances; ++rank) {
    const uint32_t instance = state.InstanceByRank(gpu, rank, State::InstanceFilter::kAll);
    if (instance != kMaxInstances) instances.push_back(instance);
  }
  return instances;
}

uint64_t UsedByInstance(State* state, uint32_t gpu, uint32_t instance) {
  return state->UsedBytes(gpu, state->gpu_state(gpu).compute_instances[instance].gpu_instance);
}

Json MigJson(State* state, uint32_t gpu) {
  Json devices = Json::MakeArray();
  for (const uint32_t instance : InstancesOf(*state, gpu)) {
    const ComputeInstance& compute = state->gpu_state(gpu).compute_instances[instance];
    Json device = Json::MakeObject();
    device.Set("uuid", Json::String(state->InstanceUuid(gpu, instance)));
    device.Set("profile", Json::String(state->InstanceProfile(gpu, instance)));
    device.Set("gpu_instance",
               Json::Int(state->gpu_state(gpu).gpu_instances[compute.gpu_instance].id));
    device.Set("compute_instance", Json::Int(compute.id));
    device.Set("memory_bytes",
               Json::Int(int64_t(state->ProfileOf(gpu, compute.gpu_instance).memory_bytes)));
    device.Set("used_bytes", Json::Int(int64_t(UsedByInstance(state, gpu, instance))));
    devices.Append(std::move(device));
  }
  return devices;
}

std::string MigText(State* state, uint32_t gpu) {
  if (!state->IsMigEnabled(gpu)) return "";
  std::string text = "  MIG mode is on\n";
  for (const uint32_t instance : InstancesOf(*state, gpu)) {
    const ComputeInstance& compute = state->gpu_state(gpu).compute_instances[instance];
    text += fmt::format("  MIG {} ({}): instance {}/{}, {} of {} MiB used\n",
                        state->InstanceProfile(gpu, instance), state->InstanceUuid(gpu, instance),
                        state->gpu_state(gpu).gpu_instances[compute.gpu_instance].id.load(),
                        compute.id.load(), UsedByInstance(state, gpu, instance) >> 20,
                        state->ProfileOf(gpu, compute.gpu_instance).memory_bytes >> 20);
  }
  return text;
}

Json FaultsJson(const StateFile& file) {
  Json faults = Json::MakeArray();
  for (const Fault& fault : file.faults) {
    if (fault.state != kFaultActive) continue;
    Json json = Json::MakeObject();
    json.Set("function", Json::String(fault.function));
    json.Set("gpu", Json::Int(fault.gpu));
    json.Set("hang", Json::Bool(fault.hang != 0));
    json.Set("result", Json::Int(fault.result));
    json.Set("after", Json::Int(int64_t(fault.after.load())));
    json.Set("times", Json::Int(int64_t(fault.times.load())));
    json.Set("calls", Json::Int(int64_t(fault.calls.load())));
    faults.Append(std::move(json));
  }
  return faults;
}

std::string FaultsText(const StateFile& file) {
  std::string text;
  for (const Fault& fault : file.faults) {
    if (fault.state != kFaultActive) continue;
    const std::string gpu = fault.gpu == kAllGpus ? "all" : fmt::format("{}", fault.gpu.load());
    const std::string behavior =
        fault.hang != 0 ? "hangs" : fmt::format("answers {}", fault.result.load());
    text += fmt::format("fault: {} on GPU {} {} after {} calls ({} so far)\n", fault.function, gpu,
                        behavior, fault.after.load(), fault.calls.load());
  }
  return text;
}

// The worst condition that a program could meet on the GPU.
std::string_view HealthOf(State* state, uint32_t gpu) {
  if (state->is_lost(gpu)) return "LOST";
  const auto is_hit = [&](bool hang) {
    return std::ranges::any_of(state->file().faults, [&](const Fault& fault) {
      const bool is_on_gpu = fault.gpu == kAllGpus || fault.gpu == int32_t(gpu);
      return fault.state == kFaultActive && is_on_gpu && (fault.hang != 0) == hang;
    });
  };
  if (is_hit(/*hang=*/true)) return "HANGS";
  if (is_hit(/*hang=*/false)) return "FAILS";
  return state->gpu_state(gpu).recovery_action != 0 ? "NEEDS A RESET" : "healthy";
}

// A line for each counter, the largest first.
std::string CounterLines(const NamedCounter (&counters)[kMaxCounters], const char* prefix,
                         const char* suffix) {
  std::map<std::string, uint64_t> sums;
  for (const NamedCounter& counter : counters) {
    if (counter.state == kCounterReady) sums[counter.name] += counter.count;
  }
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const auto& [name, count] : sums) sorted.emplace_back(count, name);
  std::ranges::sort(sorted, std::greater());
  std::string text;
  for (const auto& [count, name] : sorted) {
    text += fmt::format("{:>10}  {}{}{}\n", count, prefix, name, suffix);
  }
  return text;
}

}  // namespace

std::string ShowText(State* state) {
  const StateFile& file = state->file();
  std::string text = fmt::format("{}: {} x {}, driver {}, CUDA {}.{}\n", file.node_name,
                                 file.gpu_count, file.profile, file.driver_version,
                                 file.cuda_version / 1000, file.cuda_version % 1000 / 10);
  for (uint32_t i = 0; i < file.gpu_count; ++i) {
    const GpuFacts& gpu = state->facts(i);
    text += fmt::format("GPU {}: {} ({})\n", i, gpu.name, gpu.uuid);
    text += fmt::format("  {}  /dev/nvidia{}  NUMA {}  NVLink {}  {}\n", PciAddressText(gpu.pci),
                        gpu.minor, gpu.numa_node, LinksOf(gpu), HealthOf(state, i));
    text += fmt::format("  memory {} of {} MiB used, {} % busy\n", state->UsedBytes(i) >> 20,
                        gpu.memory_bytes >> 20, state->Utilization(i).gpu);
    text += MigText(state, i);
    for (const ProcessView& view : ProcessesOf(state, i)) {
      text += fmt::format("  pid {} {}: {} MiB, {} contexts\n", view.pid, view.name,
                          view.bytes >> 20, view.contexts);
    }
  }
  return text + FaultsText(file);
}

std::string ShowJson(State* state) {
  const StateFile& file = state->file();
  Json json = Json::MakeObject();
  json.Set("node", Json::String(file.node_name));
  json.Set("profile", Json::String(file.profile));
  json.Set("driver_version", Json::String(file.driver_version));
  json.Set("cuda_version", Json::Int(file.cuda_version));
  Json gpus = Json::MakeArray();
  for (uint32_t i = 0; i < file.gpu_count; ++i) {
    Json gpu = GpuJson(state, i);
    gpu.Set("mig", Json::Bool(state->IsMigEnabled(i)));
    gpu.Set("mig_devices", MigJson(state, i));
    gpus.Append(std::move(gpu));
  }
  json.Set("gpus", std::move(gpus));
  json.Set("faults", FaultsJson(file));
  return json.Pretty() + "\n";
}

std::string ShowUuids(const State& state) {
  std::string text;
  for (uint32_t i = 0; i < state.gpu_count(); ++i) text += fmt::format("{}\n", state.facts(i).uuid);
  return text;
}

std::string ShowUnimplemented(const State& state) {
  std::string text = CounterLines(state.file().counters, "", "");
  text += CounterLines(state.file().kernel_counters, "kernel ", " (took time, computed nothing)");
  return text.empty() ? "No calls of unimplemented functions.\n" : text;
}

}  // namespace tessera::sim
