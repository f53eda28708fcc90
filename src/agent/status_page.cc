// SPDX-License-Identifier: Apache-2.0
#include "src/agent/status_page.h"

#include <utility>

#include "api/names.h"
#include "src/agent/limits/usage_page.h"
#include "src/base/version.h"

namespace tessera::agent {
namespace {

// Longer than the interval between two scrapes, usually 30 s, so that scrapes reuse a connection.
constexpr Duration kIdle = std::chrono::minutes(2);

template <typename Condition>
void WriteReasons(const AgentStatus& status, std::string_view name, const Condition& condition,
                  MetricsText* text) {
  if (status.devices == nullptr) return;
  for (const device::Gpu& gpu : status.devices->inventory().gpus) {
    if (!condition(gpu.health)) continue;
    text->AddSample(name,
                    MetricLabel("uuid", gpu.uuid) + "," +
                        MetricLabel("state", device::NameOf(gpu.health.state)) + "," +
                        MetricLabel("reason", gpu.health.reason),
                    uint64_t{1});
  }
}

void WriteDevices(const AgentStatus& status, MetricsText* text) {
  text->AddFamily("tessera_devices", "gauge", "Devices offered to the kubelet, by health.");
  uint64_t healthy = 0;
  uint64_t all = 0;
  if (status.devices != nullptr) {
    for (const DeviceSet::Offer& offer : status.devices->offers()) {
      ++all;
      healthy += offer.healthy ? 1 : 0;
    }
  }
  const std::string resource = MetricLabel("resource", status.resource) + ",";
  text->AddSample("tessera_devices", resource + MetricLabel("state", "healthy"), healthy);
  text->AddSample("tessera_devices", resource + MetricLabel("state", "unhealthy"), all - healthy);
  text->AddFamily("tessera_device_unhealthy_info", "gauge", "GPUs that are not offered, and why.");
  WriteReasons(
      status, "tessera_device_unhealthy_info",
      [](const device::Health& health) { return !health.ok(); }, text);
  text->AddFamily("tessera_device_suspect_info", "gauge",
                  "GPUs that stay on offer after an XID that an application caused, with the XID.");
  WriteReasons(
      status, "tessera_device_suspect_info",
      [](const device::Health& health) { return health.state == device::Health::State::kSuspect; },
      text);
  if (status.devices == nullptr) return;
  text->AddFamily("tessera_driver_problem", "gauge",
                  "1 while the driver as a whole is missing or unhealthy.");
  text->AddSample("tessera_driver_problem", "",
                  uint64_t{status.devices->inventory().problem.empty() ? 0u : 1u});
}

void WriteInventory(const gpu::InventoryStats& stats, MetricsText* text) {
  text->AddFamily("tessera_nvml_errors_total", "counter", "NVML calls that failed.");
  for (const auto& [key, count] : stats.nvml_errors) {
    text->AddSample(
        "tessera_nvml_errors_total",
        MetricLabel("call", gpu::NvmlCallName(key.first)) + "," + MetricLabel("code", key.second),
        count);
  }
  text->AddFamily("tessera_nvml_hung_calls_total", "counter",
                  "NVML calls that missed their deadline.");
  for (const auto& [call, count] : stats.hung_calls) {
    text->AddSample("tessera_nvml_hung_calls_total", MetricLabel("call", gpu::NvmlCallName(call)),
                    count);
  }
  text->AddFamily("tessera_nvml_stuck_calls", "gauge",
                  "NVML calls that have missed their deadline and still run.");
  text->AddSample("tessera_nvml_stuck_calls", "", static_cast<uint64_t>(stats.calls_stuck));
  text->AddFamily("tessera_xids_total", "counter", "XIDs that the driver reported.");
  for (const auto& [key, count] : stats.xids) {
    text->AddSample(
        "tessera_xids_total",
        MetricLabel("uuid", key.first) + "," + MetricLabel("xid", std::to_string(key.second)),
        count);
  }
  text->AddFamily("tessera_driver_loads_total", "counter", "Times that NVML was loaded.");
  text->AddSample("tessera_driver_loads_total", "", stats.driver_loads);
}

net::Response ContainersPage(const AgentStatus& status) {
  const Json json =
      JsonOfUses(status.node, status.container_uses ? *status.container_uses : ContainerUses(),
                 status.devices ? status.devices->inventory() : device::NodeInventory());
  return net::JsonResponse(200, json.Serialize() + "\n");
}

}  // namespace

std::string MetricsPage(const AgentStatus& status) {
  MetricsText text;
  text.AddFamily("tessera_build_info", "gauge", "The program's version.");
  text.AddSample("tessera_build_info", MetricLabel("version", kTesseraVersion), uint64_t{1});
  text.AddFamily("tessera_registered", "gauge",
                 "1 while the kubelet reads the agent's device list.");
  text.AddSample("tessera_registered", MetricLabel("resource", status.resource),
                 uint64_t{status.registered ? 1u : 0u});
  WriteDevices(status, &text);
  if (status.inventory != nullptr) WriteInventory(*status.inventory, &text);
  WriteMetrics(*status.metrics, status.resource, &text);
  if (status.container_uses != nullptr) WriteContainerUses(*status.container_uses, &text);
  if (status.exporter == nullptr) return text.Take();
  status.exporter->WriteOwnMetrics(&text);
  return text.Take().append(status.exporter->text());
}

std::string NotReadyReason(const AgentStatus& status) {
  if (status.devices == nullptr) return "the GPUs of this node are not known yet";
  if (status.registers && !status.registered) return "not registered with the kubelet";
  return "";
}

Result<std::unique_ptr<net::HttpServer>> StartStatusPage(net::IoThread* io, TaskRunner* runner,
                                                         const std::string& address,
                                                         GetStatus get_status,
                                                         PostToGrants post_to_grants) {
  net::HttpServer::Options options;
  ASSIGN_OR_RETURN(options.address, net::ParseAddress(address).Annotate("--metrics-address"));
  options.limits.max_connections = 16;
  options.limits.max_body_bytes = 4 << 10;
  options.limits.handler_timeout = std::chrono::seconds(5);
  options.limits.idle_timeout = kIdle;
  auto handler = [get_status = std::move(get_status), post_to_grants = std::move(post_to_grants)](
                     const net::Request& request, net::HttpServer::Reply reply) {
    if (!IsGetOrHead(request)) {
      return reply(net::TextResponse(405, "this page requires GET\n"));
    }
    if (request.path() == "/metrics") {
      return reply(net::MetricsResponse(MetricsPage(get_status())));
    }
    if (request.path() == names::kContainersPath) return reply(ContainersPage(get_status()));
    if (request.path() == "/health") return reply(net::TextResponse(200, "OK"));
    if (request.path() == "/healthz") {
      // An answer shows that this thread runs, too, because it has passed the request on.
      return post_to_grants([reply] { reply(net::TextResponse(200, "ok\n")); });
    }
    if (request.path() == "/readyz") {
      const std::string reason = NotReadyReason(get_status());
      return reply(reason.empty() ? net::TextResponse(200, "ok\n")
                                  : net::TextResponse(503, reason + "\n"));
    }
    reply(net::TextResponse(
        404, fmt::format("unknown page; known pages: /metrics, {}, /health, /healthz and /readyz\n",
                         names::kContainersPath)));
  };
  return net::HttpServer::Start(*io, *runner, options, std::move(handler));
}

}  // namespace tessera::agent
