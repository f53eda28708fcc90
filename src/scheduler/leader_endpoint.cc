// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/leader_endpoint.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "src/base/weak_ptr.h"
#include "src/kube/backoff.h"
#include "src/kube/objects.h"

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
  return Error(Code::kInvalidArgument, "\"{}\" is not an IP address", ip);
}

struct LeaderEndpoint::Core {
  Core(kube::Client& c, LeaderEndpointOptions o, OnError e)
      : client(c),
        options(std::move(o)),
        on_error(std::move(e)),
        slice{kube::kEndpointSlices, options.service, options.ns, ""} {}

  // `version` is the resourceVersion that was read; "" if there was no EndpointSlice.
  Json Body(bool with_endpoint, const std::string& version) const {
    Json endpoints = Json::MakeArray({});
    if (with_endpoint) {
      endpoints = Json::MakeArray(
          {Json::MakeObject({{"addresses", Json::Strings({options.ip})},
                             {"conditions", Json::MakeObject({{"ready", Json::Bool(true)}})}})});
    }
    // kube-proxy assigns the slice to the Service by the first label
    // (pkg/proxy/endpointslicecache.go). The EndpointSlice controller changes only slices whose
    // second label has the controller's own name.
    Json metadata = Json::MakeObject(
        {{"name", Json::String(options.service)},
         {"namespace", Json::String(options.ns)},
         {"labels", Json::MakeObject(
                        {{"kubernetes.io/service-name", Json::String(options.service)},
                         {"endpointslice.kubernetes.io/managed-by", Json::String(options.service)},
                         {"app.kubernetes.io/name", Json::String(options.service)},
                         {"app.kubernetes.io/part-of", Json::String("tessera")}})}});
    if (!version.empty()) metadata.Set("resourceVersion", Json::String(version));
    return Json::MakeObject(
        {{"apiVersion", Json::String("discovery.k8s.io/v1")},
         {"kind", Json::String("EndpointSlice")},
         {"metadata", std::move(metadata)},
         {"addressType", Json::String(IsAddress(AF_INET, options.ip) ? "IPv4" : "IPv6")},
         {"endpoints", std::move(endpoints)},
         {"ports",
          Json::MakeArray({Json::MakeObject({{"name", Json::String(std::string(kPortName))},
                                             {"port", Json::Int(options.port)},
                                             {"protocol", Json::String("TCP")}})})}});
  }

  using Done = std::function<void(const Status&)>;

  // Reads the EndpointSlice, confirms the Lease, and replaces the EndpointSlice that was read.
  void Write(bool with_endpoint, Done on_done) {
    operation = client.Get(
        slice, [this, with_endpoint, on_done = std::move(on_done)](Result<Json> read_slice) {
          // A copy, because the next request replaces `operation`, which owns this lambda.
          const Done done = on_done;
          if (!read_slice.ok() && read_slice.status().code() != Code::kNotFound)
            return done(read_slice.status());
          std::string version;
          if (read_slice.ok()) version = kube::RawObject(*std::move(read_slice)).ResourceVersion();
          ConfirmLease([this, with_endpoint, version, done](const Status& lease_check) {
            const Done then = done;
            lease_check.ok() ? Replace(with_endpoint, version, then) : then(lease_check);
          });
        });
  }

  void ConfirmLease(Done on_done) {
    if (options.identity.empty()) return on_done(Status::Ok());
    operation = client.Get(
        {kube::kLeases, options.lease, options.lease_ns, ""},
        [this, on_done = std::move(on_done)](Result<Json> answer) {
          const Done done = on_done;
          if (!answer.ok()) return done(answer.status());
          const auto lease = kube::Decode<kube::LeaseObject>(kube::RawObject(*std::move(answer)));
          if (!lease.ok()) return done(lease.status());
          if (lease->holder == options.identity) return done(Status::Ok());
          done(Error(Code::kFailedPrecondition,
                     "the EndpointSlice was not written, because replica \"{}\" holds the Lease",
                     lease->holder));
        });
  }

  void Replace(bool with_endpoint, const std::string& version, Done on_done) {
    const auto on_response = [on_done = std::move(on_done)](const Result<Json>& answer) {
      on_done(answer.status());
    };
    const Json body = Body(with_endpoint, version);
    operation = version.empty() ? client.Create({kube::kEndpointSlices, "", options.ns, ""}, body,
                                                on_response, {.before_send = options.before_send})
                                : client.Patch(slice, kube::PatchKind::kApply, body,
                                               {.field_manager = options.service,
                                                .force = true,
                                                .before_send = options.before_send},
                                               on_response);
  }

  void Publish() {
    Write(/*with_endpoint=*/true, [this](const Status& answer) {
      if (answer.ok()) backoff.Reset();
      PublishAfter(answer.ok() ? options.period : backoff.Next());
      if (!answer.ok()) on_error(answer);  // last, because it may destroy the endpoint
    });
  }
  void PublishAfter(Duration pause) {
    client.runner().PostDelayed(pause, [this, weak = weak_factory.Get()] {
      if (weak && !withdrawn) Publish();
    });
  }

  kube::Client& client;
  const LeaderEndpointOptions options;
  const OnError on_error;
  const kube::ObjectRef slice;
  kube::Backoff backoff{client.NextSeed()};
  kube::Operation operation;
  bool withdrawn = false;
  WeakPtrFactory<Core> weak_factory{this};
};

LeaderEndpoint::LeaderEndpoint(kube::Client& client, LeaderEndpointOptions options,
                               OnError on_error)
    : core_(std::make_unique<Core>(client, std::move(options), std::move(on_error))) {
  core_->Publish();
}

LeaderEndpoint::~LeaderEndpoint() { core_->operation.Cancel(); }

void LeaderEndpoint::Withdraw(std::function<void()> on_done) {
  core_->withdrawn = true;
  core_->Write(/*with_endpoint=*/false,
               [on_done = std::move(on_done)](const Status&) { on_done(); });
}

}  // namespace tessera::scheduler
