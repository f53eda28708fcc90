// SPDX-License-Identifier: Apache-2.0
#include "src/agent/compat/manager_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "src/base/metrics.h"
#include "src/device/dialects.h"

namespace tessera::agent {
namespace {

double Mib(Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 20); }

// The shortest decimal form of the number: 0.3, 5120, 0.5.
std::string Decimal(double value) { return fmt::format("{}", value); }

// A metric family with values for each GPU and in total, or only in total.
struct Family {
  const char* name;
  const char* help;
  const char* label;  // its value is gpu0 or total
  std::function<double(const ManagerGpuUse&)>
      value_on_gpu;  // value of one GPU; null: a limit, which has only a total
  std::function<double(const ManagerContainer&)> total_of;
};

double Sum(const ManagerContainer& container,
           const std::function<double(const ManagerGpuUse&)>& value_on_gpu) {
  double sum = 0;
  for (const ManagerGpuUse& gpu : container.gpus) sum += value_on_gpu(gpu);
  return sum;
}

const std::vector<Family>& Families() {
  const auto used = [](const ManagerGpuUse& gpu) { return Mib(gpu.used); };
  const auto percent = [](const ManagerGpuUse& gpu) { return static_cast<double>(gpu.percent); };
  static const std::vector<Family> families{
      {"container_gpu_memory_total", "gpu memory usage in MiB", "gpu_memory", used,
       [used](const ManagerContainer& c) { return Sum(c, used); }},
      {"container_gpu_utilization", "gpu utilization", "gpu", percent,
       [percent](const ManagerContainer& c) { return Sum(c, percent); }},
      {"container_request_gpu_memory", "request of gpu memory in MiB", "req_of_gpu_memory", nullptr,
       [](const ManagerContainer& c) { return Mib(c.memory); }},
      {"container_request_gpu_utilization", "request of gpu utilization", "req_of_gpu", nullptr,
       [](const ManagerContainer& c) { return static_cast<double>(c.milli) / 1000; }},
  };
  return families;
}

// Labels in the order of their names, as Prometheus' own library writes them.
std::string LabelsOf(const ManagerState& state, const ManagerContainer& container,
                     const Family& family, const std::string& which) {
  std::vector<std::pair<std::string, std::string>> labels{{"container_name", container.container},
                                                          {family.label, which},
                                                          {"namespace", container.ns},
                                                          {"node", state.node},
                                                          {"pod_name", container.pod}};
  std::ranges::sort(labels);
  std::string text;
  for (const auto& [name, value] : labels) {
    if (!text.empty()) text += ',';
    text += MetricLabel(name, value);
  }
  return text;
}

std::vector<const ManagerContainer*> Sorted(const ManagerState& state) {
  std::vector<const ManagerContainer*> sorted;
  for (const ManagerContainer& container : state.containers) sorted.push_back(&container);
  std::ranges::sort(sorted, [](const auto* a, const auto* b) {
    return std::tie(a->container, a->ns, a->pod, a->pod_uid) <
           std::tie(b->container, b->ns, b->pod, b->pod_uid);
  });
  return sorted;
}

std::string PidsText(const std::vector<int>& pids) {
  return fmt::format("[{}]", fmt::join(pids, " "));
}

Json JsonOfDevice(const ManagerGpuUse& gpu) {
  Json device = Json::MakeObject({{"id", Json::String(gpu.pci_bus_id)},
                                  {"card_idx", Json::String(fmt::format("{}", gpu.index))}});
  if (gpu.is_known) {
    Json pids = Json::MakeArray();
    for (const int pid : gpu.pids) pids.Append(Json::Int(pid));
    device.Set("gpu", Json::Int(gpu.percent));
    device.Set("mem", Json::NumberText(Decimal(Mib(gpu.used))));
    device.Set("pids", std::move(pids));
  }
  device.Set("device_mem", Json::NumberText(Decimal(Mib(gpu.total))));
  return device;
}

}  // namespace

std::string ManagerMetricPage(const ManagerState& state) {
  MetricsText text;
  const std::vector<const ManagerContainer*> containers = Sorted(state);
  for (const Family& family : Families()) {
    // Unknown usage is left out, because it is not 0.
    if (containers.empty() || (family.value_on_gpu && !state.problem.empty())) continue;
    text.AddFamily(family.name, "gauge", family.help);
    for (const ManagerContainer* container : containers) {
      for (const ManagerGpuUse& gpu : container->gpus) {
        if (!family.value_on_gpu) break;
        if (!gpu.is_known) continue;
        const std::string which = fmt::format("gpu{}", gpu.index);
        text.AddSample(family.name, LabelsOf(state, *container, family, which),
                       family.value_on_gpu(gpu));
      }
      if (family.value_on_gpu && !std::ranges::all_of(container->gpus, &ManagerGpuUse::is_known)) {
        continue;
      }
      text.AddSample(family.name, LabelsOf(state, *container, family, "total"),
                     family.total_of(*container));
    }
  }
  return text.Take();
}

Json ManagerUsage(const ManagerState& state) {
  Json usage = Json::MakeObject();
  for (const ManagerContainer* container : Sorted(state)) {
    Json* pod = usage.EnsureObject(container->pod_uid.str()).value();
    Json devices = Json::MakeArray();
    for (const ManagerGpuUse& gpu : container->gpus) devices.Append(JsonOfDevice(gpu));
    pod->EnsureObject("stat").value()->Set(container->container,
                                           Json::MakeObject({{"dev", std::move(devices)}}));
    pod->Set("project", Json::String(container->ns));
    const double limit_gpus = static_cast<double>(container->milli) / 1000;
    pod->EnsureObject("spec").value()->Set(
        container->container,
        Json::MakeObject({{"gpu", Json::NumberText(Decimal(limit_gpus))},
                          {"mem", Json::NumberText(Decimal(Mib(container->memory)))}}));
  }
  return Json::MakeObject({{"usage", std::move(usage)}});
}

Json ManagerGraph(const ManagerState& state) {
  const auto is_idle = [](const ManagerGpu& gpu) { return gpu.free_milli == 1000; };
  std::string graph = fmt::format("ROOT:{}\n", std::ranges::count_if(state.gpus, is_idle));
  for (const ManagerGpu& gpu : state.gpus) {
    graph += fmt::format(
        "|---GPU{} (pids: {}, usedMemory: {}, totalMemory: {}, allocatableCores: {}, "
        "allocatableMemory: {})\n",
        gpu.index, gpu.is_known ? PidsText(gpu.pids) : "unknown",
        gpu.is_known ? fmt::format("{}", gpu.used.count()) : "unknown", gpu.total.count(),
        gpu.free_milli / device::kVcudaCore.count(), gpu.free.count());
  }
  return Json::MakeObject({{"graph", Json::String(graph)}});
}

}  // namespace tessera::agent
