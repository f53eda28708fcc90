// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/verbs.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/version.h"
#include "src/formats/json.h"
#include "src/scheduler/wire.h"

namespace tessera::scheduler {
namespace {

using net::HttpServer;
using net::Request;
using net::Response;

// The device memory that a pod holds of one device.
struct PodOnGpu {
  const ledger::PodEntry* pod;
  Bytes memory;
};
// By UUID of the device.
using UsesByUuid = std::map<std::string, std::vector<PodOnGpu>, std::less<>>;

// By node.
std::map<std::string, UsesByUuid, std::less<>> UsesOf(const ledger::ClusterLedger& ledger) {
  std::map<std::string, UsesByUuid, std::less<>> all;
  for (const auto& [uid, pod] : ledger.pods()) {
    for (const auto& [uuid, share] : ledger::SharesOf(pod)) {
      all[pod.node][uuid].push_back({&pod, share.memory});
    }
  }
  return all;
}

Json DeviceOf(const device::Gpu& gpu, const UsesByUuid& uses, int64_t unit_bytes) {
  Json pods = Json::MakeArray();
  int64_t used = 0;
  const auto add = [&](std::string_view uuid) {
    const auto of_gpu = uses.find(uuid);
    if (of_gpu == uses.end()) return;
    for (const PodOnGpu& use : of_gpu->second) {
      const int64_t units = use.memory.count() / unit_bytes;
      used += units;
      pods.Append(Json::MakeObject({{"name", Json::String(use.pod->request.name)},
                                    {"namespace", Json::String(use.pod->request.ns)},
                                    {"usedGPU", Json::Int(units)}}));
    }
  };
  add(gpu.uuid);
  if (gpu.mig) {
    for (const device::MigSlice& slice : *gpu.mig) add(slice.uuid);
  }
  return Json::MakeObject({{"id", Json::Int(gpu.minor.value_or(gpu.index))},
                           {"totalGPU", Json::Int(gpu.memory.count() / unit_bytes)},
                           {"usedGPU", Json::Int(used)},
                           {"pods", std::move(pods)}});
}

Json NodeOf(const ledger::NodeEntry& node, const UsesByUuid& uses, int64_t unit_bytes) {
  Json devices = Json::MakeArray();
  int64_t total = 0, used = 0;
  const device::NodeInventory inventory = node.node.inventory.Full();
  for (const device::Gpu& gpu : inventory.gpus) {
    Json device = DeviceOf(gpu, uses, unit_bytes);
    total += device.IntAt("totalGPU").value_or(0);
    used += device.IntAt("usedGPU").value_or(0);
    devices.Append(std::move(device));
  }
  return Json::MakeObject({{"name", Json::String(node.node.name)},
                           {"totalGPU", Json::Int(total)},
                           {"usedGPU", Json::Int(used)},
                           {"devs", std::move(devices)}});
}

class Verbs : public std::enable_shared_from_this<Verbs> {
 public:
  Verbs(GetActiveTerm get_active_term, const Clock& clock, SchedulerMetrics& metrics,
        trace::SpanRecorder record_span)
      : get_active_term_(std::move(get_active_term)),
        clock_(clock),
        metrics_(metrics),
        record_span_(std::move(record_span)) {}

  using Decide = FilterResult (Extender::*)(const ExtenderArgs&);
  Router::Handler Filter(Decide decide) {
    return WithExtender(ExtenderVerb::kFilter, [this, decide](Extender& extender,
                                                              const Request& request) {
      ExtenderArgs& args = args_;
      if (const Status status = ParseExtenderArgs(request.body, &args); !status.ok()) {
        return BadRequest(ExtenderVerb::kFilter, status, SerializeFilterError(status.message()));
      }
      const WallTime began = clock_.WallNow();
      const FilterResult result = (extender.*decide)(args);
      TraceFilter(args, began, result);
      return net::JsonResponse(200, Serialize(args, result));
    });
  }

  template <typename Score>
  Router::Handler Prioritize(Score score) {
    return WithExtender(
        ExtenderVerb::kPrioritize, [this, score](Extender& extender, const Request& request) {
          ExtenderArgs& args = args_;
          if (const Status status = ParseExtenderArgs(request.body, &args); !status.ok()) {
            return BadRequest(ExtenderVerb::kPrioritize, status, "[]");
          }
          return net::JsonResponse(200, SerializePriorities(args, (extender.*score)(args)));
        });
  }

  Router::Handler Preempt() {
    return WithExtender(ExtenderVerb::kPreempt, [this](Extender& extender, const Request& request) {
      const Result<PreemptionArgs> args = ParsePreemptionArgs(request.body);
      if (!args.ok())
        return BadRequest(ExtenderVerb::kPreempt, args.status(), SerializeVictims({}));
      return net::JsonResponse(200, SerializeVictims(extender.Preempt(*args)));
    });
  }

  // `error_status`: HTTP status of a failed binding.
  Router::Handler Bind(int error_status) {
    return
        [self = shared_from_this(), error_status](const Request& request, HttpServer::Reply reply) {
          const Result<ActiveTerm> active_term = self->get_active_term_();
          if (!active_term.ok()) return reply(Unavailable(active_term.status()));
          const MonotonicTime began = self->clock_.Now();
          const Result<BindingArgs> args = ParseBindingArgs(request.body);
          const Binder::Done done = [self, began, args, at = self->clock_.WallNow(), error_status,
                                     reply = std::move(reply)](const Status& status) {
            self->metrics_.latency_of(ExtenderVerb::kBind).Observe(self->clock_.Now() - began);
            self->metrics_.bindings.Add(InfoOf(status.code()).name);
            if (args.ok()) self->TraceBind(*args, at, status);
            reply(net::JsonResponse(status.ok() ? 200 : error_status,
                                    SerializeBindingResult(status.message())));
          };
          if (args.ok()) return active_term->extender->Bind(*args, done);
          self->metrics_.bad_requests.Add(kVerbNames[static_cast<size_t>(ExtenderVerb::kBind)]);
          done(args.status());
        };
  }

  // `prefix`: the path before the name of a node; without a name, the page shows all nodes.
  Router::Handler Inspect(std::string prefix) {
    return [self = shared_from_this(), prefix = std::move(prefix)](const Request& request,
                                                                   HttpServer::Reply reply) {
      const Result<ActiveTerm> active_term = self->get_active_term_();
      if (!active_term.ok()) return reply(Unavailable(active_term.status()));
      std::string_view path = request.path();
      path.remove_prefix(std::min(path.size(), prefix.size()));
      const Result<std::string> node = net::PercentDecode(path);
      if (!node.ok()) return reply(net::TextResponse(400, node.status().message() + "\n"));
      reply(net::JsonResponse(200, scheduler::Inspect(*active_term->ledger, *node)));
    };
  }

 private:
  // kube-scheduler treats any status except 200 as a failure of the extender (HTTPExtender.send in
  // pkg/scheduler/extender.go) and retries the pod. The connection is closed, because the next
  // connection may reach the leader.
  static Response Unavailable(const Status& why) {
    Response response = net::TextResponse(503, why.message() + "\n");
    response.headers.Set("Connection", "close");
    return response;
  }

  Response BadRequest(ExtenderVerb verb, const Status& status, std::string body) {
    metrics_.bad_requests.Add(kVerbNames[static_cast<size_t>(verb)]);
    // A filter response has a field for the error; other responses do not. After an error of
    // prioritize, kube-scheduler goes on without Tessera's points (prioritizeNodes in
    // pkg/scheduler/schedule_one.go).
    if (verb == ExtenderVerb::kFilter) return net::JsonResponse(200, std::move(body));
    return net::TextResponse(400, status.message() + "\n");
  }

  void TraceFilter(const ExtenderArgs& args, WallTime began, const FilterResult& result) {
    if (!record_span_) return;
    Status status;
    if (!result.error.empty()) {
      status = Status(Code::kUnavailable, result.error);
    } else if (result.fitting.empty()) {
      status = Status(Code::kResourceExhausted, "no node fits");
    }
    const kube::ObjectMeta& meta = args.pod.meta;
    record_span_(
        {.name = "filter",
         .subject = {meta.uid, meta.ns, meta.name, ""},
         .start = began,
         .end = clock_.WallNow(),
         .attributes = {{"tessera.nodes", fmt::format("{}", args.node_names.size())},
                        {"tessera.nodes.fitting", fmt::format("{}", result.fitting.size())}},
         .status = std::move(status)});
  }

  void TraceBind(const BindingArgs& args, WallTime began, const Status& status) {
    if (!record_span_) return;
    record_span_({.name = "bind",
                  .subject = {args.uid, args.ns, args.pod, ""},
                  .start = began,
                  .end = clock_.WallNow(),
                  .attributes = {{"k8s.node.name", args.node}},
                  .status = status});
  }

  template <typename Answer>
  Router::Handler WithExtender(ExtenderVerb verb, Answer answer) {
    return
        [self = shared_from_this(), verb, answer](const Request& request, HttpServer::Reply reply) {
          const Result<ActiveTerm> active_term = self->get_active_term_();
          if (!active_term.ok()) return reply(Unavailable(active_term.status()));
          const MonotonicTime began = self->clock_.Now();
          Response response = answer(*active_term->extender, request);
          self->metrics_.latency_of(verb).Observe(self->clock_.Now() - began);
          reply(std::move(response));
        };
  }

  const GetActiveTerm get_active_term_;
  const Clock& clock_;
  SchedulerMetrics& metrics_;
  const trace::SpanRecorder record_span_;
  ExtenderArgs args_;  // of the current request
};

}  // namespace

std::string Inspect(const ledger::ClusterLedger& ledger, std::string_view node) {
  const int64_t unit_bytes = device::SizeOf(ledger.options().gpu_mem_unit).count();
  const auto uses = UsesOf(ledger);
  Json nodes = Json::MakeArray();
  for (const auto& [name, entry] : ledger.nodes()) {
    if (node.empty() ? entry.id == placement::kNoNode : name != node) continue;
    const auto of_node = uses.find(name);
    nodes.Append(NodeOf(entry, of_node == uses.end() ? UsesByUuid() : of_node->second, unit_bytes));
  }
  const bool missing = !node.empty() && nodes.items().empty();
  Json answer = Json::MakeObject({{"nodes", std::move(nodes)}});
  if (missing) answer.Set("error", Json::String(fmt::format("there is no node \"{}\"", node)));
  return answer.Serialize();
}

net::ServerLimits LimitsOfVerbs(size_t max_request_bytes) {
  net::ServerLimits limits;
  limits.max_connections = 4096;
  limits.max_body_bytes = max_request_bytes;
  // kube-scheduler filters one pod at a time. Concurrent bind requests take a few bytes each.
  limits.max_total_body_bytes = 3 * max_request_bytes;
  // kube-scheduler reuses its connection.
  limits.idle_timeout = std::chrono::minutes(5);
  return limits;
}

void AddVerbs(GetActiveTerm get_active_term, const Clock& clock, SchedulerMetrics& metrics,
              trace::SpanRecorder record_span, Router* router) {
  const auto verbs =
      std::make_shared<Verbs>(std::move(get_active_term), clock, metrics, std::move(record_span));
  const auto add = [&](std::string_view prefix, int bind_error) {
    const std::string base(prefix);
    router->Post(base + "/filter", verbs->Filter(&Extender::Filter));
    router->Post(base + "/prioritize", verbs->Prioritize(&Extender::Prioritize));
    router->Post(base + "/preempt", verbs->Preempt());
    router->Post(base + "/bind", verbs->Bind(bind_error));
  };
  add(kExtenderPrefix, 200);
  add(kGpusharePrefix, 500);
  const std::string inspect = std::string(kGpusharePrefix) + "/inspect";
  router->Get(inspect, verbs->Inspect(inspect));
  router->Get(inspect + "/", verbs->Inspect(inspect + "/"));
  const std::string admission(kGpuAdmissionPrefix);
  router->Post(admission + "/predicates", verbs->Filter(&Extender::FilterToOne));
  router->Post(admission + "/priorities", verbs->Prioritize(&Extender::PrioritizeCpuNodes));
  router->Get("/version", [](const Request&, HttpServer::Reply reply) {
    reply(net::TextResponse(200, std::string(kTesseraVersion)));
  });
}

}  // namespace tessera::scheduler
