// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/verbs.h"

#include <memory>
#include <string>
#include <utility>

#include "src/base/version.h"
#include "src/scheduler/inspect.h"
#include "src/scheduler/wire.h"

namespace tessera::scheduler {
namespace {

using net::HttpServer;
using net::Request;
using net::Response;

class Verbs : public std::enable_shared_from_this<Verbs> {
 public:
  Verbs(GetDeciders get, const Clock& clock, SchedulerMetrics& metrics)
      : get_(std::move(get)), clock_(clock), metrics_(metrics) {}

  using Decide = FilterResult (Extender::*)(const ExtenderArgs&);
  Router::Handler Filter(Decide decide) {
    return WithExtender(Verb::kFilter, [this, decide](Extender& extender, const Request& request) {
      ExtenderArgs& args = args_;
      if (const Status status = ParseExtenderArgs(request.body, &args); !status.ok()) {
        return Bad(Verb::kFilter, status, SerializeFilterError(status.message()));
      }
      return JsonResponse(200, Serialize(args, (extender.*decide)(args)));
    });
  }

  template <typename Score>
  Router::Handler Prioritize(Score score) {
    return WithExtender(
        Verb::kPrioritize, [this, score](Extender& extender, const Request& request) {
          ExtenderArgs& args = args_;
          if (const Status status = ParseExtenderArgs(request.body, &args); !status.ok()) {
            return Bad(Verb::kPrioritize, status, "[]");
          }
          return JsonResponse(200, SerializePriorities(args, (extender.*score)(args)));
        });
  }

  Router::Handler Preempt() {
    return WithExtender(Verb::kPreempt, [this](Extender& extender, const Request& request) {
      const Result<PreemptionArgs> args = ParsePreemptionArgs(request.body);
      if (!args.ok()) return Bad(Verb::kPreempt, args.status(), SerializeVictims({}));
      return JsonResponse(200, SerializeVictims(extender.Preempt(*args)));
    });
  }

  // `error_status`: HTTP's, of a binding that failed.
  Router::Handler Bind(int error_status) {
    return
        [self = shared_from_this(), error_status](const Request& request, HttpServer::Reply reply) {
          const Result<Deciders> deciders = self->get_();
          if (!deciders.ok()) return reply(Unavailable(deciders.status()));
          const MonotonicTime began = self->clock_.Now();
          const Binder::Done done = [self, began, error_status,
                                     reply = std::move(reply)](const Status& status) {
            self->metrics_.of(Verb::kBind).Observe(self->clock_.Now() - began);
            self->metrics_.bindings.Add(InfoOf(status.code()).name);
            reply(JsonResponse(status.ok() ? 200 : error_status,
                               SerializeBindingResult(status.message())));
          };
          const Result<BindingArgs> args = ParseBindingArgs(request.body);
          if (args.ok()) return deciders->extender->Bind(*args, done);
          self->metrics_.bad_requests.Add(kVerbNames[static_cast<size_t>(Verb::kBind)]);
          done(args.status());
        };
  }

  // `prefix`: the path before the name of a node; without a name, the page shows all nodes.
  Router::Handler Inspect(std::string prefix) {
    return [self = shared_from_this(), prefix = std::move(prefix)](const Request& request,
                                                                   HttpServer::Reply reply) {
      const Result<Deciders> deciders = self->get_();
      if (!deciders.ok()) return reply(Unavailable(deciders.status()));
      std::string_view path = request.path();
      path.remove_prefix(std::min(path.size(), prefix.size()));
      const Result<std::string> node = net::PercentDecode(path);
      if (!node.ok()) return reply(net::TextResponse(400, node.status().message() + "\n"));
      reply(JsonResponse(200, scheduler::Inspect(*deciders->ledger, *node)));
    };
  }

 private:
  // kube-scheduler takes anything but 200 as the extender's failure, and asks again for the pod.
  // The connection is closed, because the next one may lead to the replica that can answer.
  static Response Unavailable(const Status& why) {
    Response response = net::TextResponse(503, why.message() + "\n");
    response.headers.Set("Connection", "close");
    return response;
  }

  Response Bad(Verb verb, const Status& status, std::string body) {
    metrics_.bad_requests.Add(kVerbNames[static_cast<size_t>(verb)]);
    // Filter can tell the error in its answer; the others have no place for it.
    if (verb == Verb::kFilter) return JsonResponse(200, std::move(body));
    return net::TextResponse(400, status.message() + "\n");
  }

  template <typename Answer>
  Router::Handler WithExtender(Verb verb, Answer answer) {
    return
        [self = shared_from_this(), verb, answer](const Request& request, HttpServer::Reply reply) {
          const Result<Deciders> deciders = self->get_();
          if (!deciders.ok()) return reply(Unavailable(deciders.status()));
          const MonotonicTime began = self->clock_.Now();
          Response response = answer(*deciders->extender, request);
          self->metrics_.of(verb).Observe(self->clock_.Now() - began);
          reply(std::move(response));
        };
  }

  const GetDeciders get_;
  const Clock& clock_;
  SchedulerMetrics& metrics_;
  ExtenderArgs args_;  // of the request that is being answered
};

}  // namespace

net::ServerLimits LimitsOfVerbs(size_t max_request_bytes) {
  net::ServerLimits limits;
  limits.connections = 4096;
  limits.body_bytes = max_request_bytes;
  // kube-scheduler filters one pod at a time. Bind requests beside it take a few bytes each.
  limits.all_bodies_bytes = 3 * max_request_bytes;
  // kube-scheduler keeps its connection.
  limits.idle = std::chrono::minutes(5);
  return limits;
}

void AddVerbs(GetDeciders get, const Clock& clock, SchedulerMetrics& metrics, Router* router) {
  const auto verbs = std::make_shared<Verbs>(std::move(get), clock, metrics);
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
