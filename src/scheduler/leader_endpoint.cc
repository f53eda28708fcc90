// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/leader_endpoint.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "src/kube/backoff.h"

namespace tessera::scheduler {
namespace {

constexpr std::string_view kPortName = "extender";

bool IsAddress(int family, const std::string& ip) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(family, ip.c_str(), bytes) == 1;
}

}  // namespace

Status CheckIp(const std::string& ip) {
  if (IsAddress(AF_INET, ip) || IsAddress(AF_INET6, ip)) return Status::Ok();
  return Error(Code::kInvalidArgument, "\"{}\" is no IP address", ip);
}

struct LeaderEndpoint::Core : std::enable_shared_from_this<LeaderEndpoint::Core> {
  Core(kube::Client& c, LeaderEndpointOptions o, OnTrouble t)
      : client(c),
        options(std::move(o)),
        on_trouble(std::move(t)),
        slice{kube::kEndpointSlices, options.service, options.ns, ""} {}

  Json Body(bool answering) const {
    Json endpoints = Json::MakeArray({});
    if (answering) {
      endpoints = Json::MakeArray(
          {Json::MakeObject({{"addresses", Json::Strings({options.ip})},
                             {"conditions", Json::MakeObject({{"ready", Json::Bool(true)}})}})});
    }
    return Json::MakeObject(
        {{"apiVersion", Json::String("discovery.k8s.io/v1")},
         {"kind", Json::String("EndpointSlice")},
         {"metadata",
          Json::MakeObject(
              {{"name", Json::String(options.service)},
               {"namespace", Json::String(options.ns)},
               {"labels",
                Json::MakeObject(
                    {{"kubernetes.io/service-name", Json::String(options.service)},
                     {"endpointslice.kubernetes.io/managed-by", Json::String(options.service)},
                     {"app.kubernetes.io/name", Json::String(options.service)},
                     {"app.kubernetes.io/part-of", Json::String("tessera")}})}})},
         {"addressType", Json::String(IsAddress(AF_INET, options.ip) ? "IPv4" : "IPv6")},
         {"endpoints", std::move(endpoints)},
         {"ports",
          Json::MakeArray({Json::MakeObject({{"name", Json::String(std::string(kPortName))},
                                             {"port", Json::Int(options.port)},
                                             {"protocol", Json::String("TCP")}})})}});
  }

  void Write(bool answering, kube::Client::OnObject on_done) {
    operation = client.Patch(slice, kube::PatchKind::kApply, Body(answering),
                             {.field_manager = options.service, .force = true}, std::move(on_done));
  }

  void Publish() {
    Write(true, [weak = weak_from_this()](const Result<Json>& answer) {
      const auto self = weak.lock();
      if (!self) return;
      if (!answer.ok()) self->on_trouble(answer.status());
      if (answer.ok()) self->backoff.Reset();
      self->PublishAfter(answer.ok() ? self->options.period : self->backoff.Next());
    });
  }
  void PublishAfter(Duration pause) {
    client.runner().PostDelayed(pause, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && !self->withdrawn) self->Publish();
    });
  }

  kube::Client& client;
  const LeaderEndpointOptions options;
  const OnTrouble on_trouble;
  const kube::ObjectRef slice;
  kube::Backoff backoff;
  kube::Operation operation;
  bool withdrawn = false;
};

LeaderEndpoint::LeaderEndpoint(kube::Client& client, LeaderEndpointOptions options,
                               OnTrouble on_trouble)
    : core_(std::make_shared<Core>(client, std::move(options), std::move(on_trouble))) {
  core_->Publish();
}

LeaderEndpoint::~LeaderEndpoint() { core_->operation.Cancel(); }

void LeaderEndpoint::Withdraw(std::function<void()> on_done) {
  core_->withdrawn = true;
  core_->Write(false, [on_done = std::move(on_done)](const Result<Json>&) { on_done(); });
}

}  // namespace tessera::scheduler
