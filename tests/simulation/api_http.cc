// SPDX-License-Identifier: Apache-2.0
// The HTTP interface of the simulated API server.
#include <algorithm>
#include <utility>

#include "src/base/strings.h"
#include "src/formats/json.h"
#include "src/kube/testing/samples.h"
#include "src/kube/testing/wire_writer.h"
#include "tests/simulation/api_server.h"

namespace tessera::simulation {

using namespace std::chrono_literals;
using kube::testing::JsonOf;
using kube::testing::MessageOf;
using kube::testing::WatchFrame;
using net::JsonResponse;

namespace {

net::Response ErrorResponse(int status, std::string_view reason) {
  return JsonResponse(status, fmt::format(R"({{"kind":"Status","apiVersion":"v1","code":{},)"
                                          R"("reason":"{}","message":"{}"}})",
                                          status, reason, reason));
}

// Applies a JSON merge patch (RFC 7386) that removes no members.
void Merge(Json* into, const Json& patch) {
  for (const auto& [key, value] : patch.members()) {
    if (value.is_object()) {
      Merge(into->EnsureObject(key).value(), value);
    } else {
      into->Set(key, value);
    }
  }
}

const Json* VersionIn(const Json& object) {
  return object.Find("metadata")->Find("resourceVersion");
}

constexpr std::string_view kSlicePath =
    "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/tessera-scheduler";

}  // namespace

Duration ApiServer::RequestDelay() {
  if (calm_ || world_.Chance(90)) return world_.Between(1ms, 30ms);
  return world_.Chance(80) ? world_.Between(30ms, 3s) : world_.Between(3s, 12s);
}

Duration ApiServer::WatchDelay() {
  const bool late = !calm_ && world_.Chance(2);
  return late ? world_.Between(1s, 20s) : world_.Between(5ms, 200ms);
}

net::Response ApiServer::Handle(const net::Request& request, bool may_write, Duration delay) {
  std::vector<std::string> path;
  for (const std::string_view part : Split(request.path(), '/')) path.emplace_back(part);
  // "", api, v1, namespaces, NS, pods, NAME, SUBRESOURCE
  const bool of_pod = path.size() > 6 && path[5] == "pods";
  return of_pod ? HandlePod(request, path, may_write, delay) : HandleObject(request);
}

net::Response ApiServer::HandlePod(const net::Request& request,
                                   const std::vector<std::string>& path, bool may_write,
                                   Duration delay) {
  const std::string& name = path[6];
  const auto known = pods_.find(name);
  if (request.method == "GET") {
    return known == pods_.end() ? ErrorResponse(404, "NotFound")
                                : JsonResponse(200, JsonOf(known->second));
  }
  const Json body = ParseJson(request.body).value();
  if (path[7] == "eviction") {
    return Evict(name,
                 Uid(body.Find("deleteOptions")->Find("preconditions")->StringAt("uid").value()));
  }
  const Json* metadata = body.Find("metadata");
  kube::PodBinding binding{.ns = path[4],
                           .pod = name,
                           .uid = Uid(metadata->StringAt("uid").value()),
                           .node = body.Find("target")->StringAt("name").value()};
  if (const Json* annotations = metadata->Find("annotations")) {
    for (const auto& [key, value] : annotations->members()) {
      binding.annotations[key] = value.string_value();
    }
  }
  if (!may_write) world_.Note("a former leader's binding arrives: " + binding.uid.str());
  const Status status = Bind(binding);
  if (status.ok() && !may_write) stale_bindings_.insert(binding.uid);
  if (status.ok() && delay > 1s) late_bindings_.insert(binding.uid);
  if (status.ok()) return JsonResponse(201, R"({"kind":"Status","status":"Success"})");
  return status.code() == Code::kNotFound ? ErrorResponse(404, "NotFound")
                                          : ErrorResponse(409, "Conflict");
}

net::Response ApiServer::Evict(const std::string& name, const Uid& uid) {
  const auto known = pods_.find(name);
  if (known == pods_.end()) return ErrorResponse(404, "NotFound");
  if (known->second.meta.uid != uid) return ErrorResponse(409, "Conflict");
  if (world_.Chance(20))
    return ErrorResponse(429, "TooManyRequests");  // a budget currently forbids the eviction
  world_.Note("evicted " + uid.str());
  kube::PodObject pod = known->second;
  pod.meta.deleting = true;
  Put(std::move(pod));
  return JsonResponse(201, R"({"kind":"Status","status":"Success"})");
}

net::Response ApiServer::HandleObject(const net::Request& request) {
  const Json body = request.body.empty() ? Json::MakeObject() : ParseJson(request.body).value();
  std::string path(request.path());
  if (request.method == "POST") path += "/" + body.Find("metadata")->StringAt("name").value();
  const auto known = objects_.find(path);
  if (request.method == "POST" && known != objects_.end())
    return ErrorResponse(409, "AlreadyExists");
  if (request.method != "POST" && known == objects_.end()) return ErrorResponse(404, "NotFound");
  if (request.method == "GET") return JsonResponse(200, known->second.Serialize());
  Json next = body;
  if (request.method == "PATCH") {
    const Json* expected = VersionIn(body);
    if (expected != nullptr && !(*expected == *VersionIn(known->second))) {
      return ErrorResponse(409, "Conflict");
    }
    if (request.headers.Get("Content-Type").find("merge-patch") != std::string_view::npos) {
      next = known->second;
      Merge(&next, body);
    }
  }
  next.EnsureObject("metadata")
      .value()
      ->Set("resourceVersion", Json::String(std::to_string(++object_version_)));
  objects_[path] = next;
  return JsonResponse(200, next.Serialize());
}

std::string ApiServer::LeaderAddress() const {
  const auto slice = objects_.find(std::string(kSlicePath));
  if (slice == objects_.end()) return "";
  const Json::Array& endpoints = slice->second.Find("endpoints")->items();
  return endpoints.empty() ? "" : endpoints[0].Find("addresses")->items()[0].string_value();
}

ApiServer::Kind ApiServer::KindOf(const net::Request& request) {
  const std::string_view path = request.path();
  return path.ends_with("/nodes")        ? Kind::kNodes
         : path.ends_with("/pods")       ? Kind::kPods
         : path.ends_with("/configmaps") ? Kind::kConfigMaps
                                         : Kind::kBudgets;
}

std::string ApiServer::FramesOfAll(Kind kind) const {
  std::string frames;
  if (kind == Kind::kNodes) {
    for (const auto& [name, node] : nodes_) frames += WatchFrame("ADDED", "Node", MessageOf(node));
  }
  if (kind == Kind::kPods) {
    for (const auto& [name, pod] : pods_) frames += WatchFrame("ADDED", "Pod", MessageOf(pod));
  }
  if (kind == Kind::kConfigMaps && !quota_.meta.name.empty()) {
    frames += WatchFrame("ADDED", "ConfigMap", MessageOf(quota_));
  }
  if (kind == Kind::kBudgets) {
    for (const auto& budget : budgets_) {
      frames += WatchFrame("ADDED", "PodDisruptionBudget", MessageOf(budget));
    }
  }
  return frames;
}

std::string ApiServer::BookmarkFrame(Kind kind, bool ends_initial) const {
  kube::PodObject mark{.meta = {.resource_version = std::to_string(version())}};
  if (ends_initial) mark.meta.annotations["k8s.io/initial-events-end"] = "true";
  return WatchFrame("BOOKMARK", kind == Kind::kPods ? "Pod" : "Node", MessageOf(mark));
}

const std::string& ApiServer::FrameOf(Kind kind, size_t version) {
  static const std::string kNone;
  Event& event = log_[version];
  if (kind != (event.pod ? Kind::kPods : Kind::kNodes)) return kNone;
  if (event.frame.empty()) {
    // A deleted object has the version of its deletion.
    const std::string now = std::to_string(version + 1);
    const std::string_view type = event.gone ? "DELETED" : "MODIFIED";
    if (event.pod) {
      kube::PodObject pod = *event.pod;
      pod.meta.resource_version = now;
      event.frame = WatchFrame(type, "Pod", MessageOf(pod));
    } else {
      kube::NodeObject node = *event.node;
      node.meta.resource_version = now;
      event.frame = WatchFrame(type, "Node", MessageOf(node));
    }
  }
  return event.frame;
}

void ApiServer::SetQuota(const std::string& text) {
  quota_ = {
      .meta = {.name = "gpuquota", .ns = "kube-system", .uid = Uid("q"), .resource_version = "1"},
      .data = {{"gpu_quota", text}}};
}

}  // namespace tessera::simulation
