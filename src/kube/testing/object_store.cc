// SPDX-License-Identifier: Apache-2.0
#include "src/kube/testing/object_store.h"

#include <utility>

#include "src/kube/testing/json_patch.h"

namespace tessera::kube::testing {
namespace {

net::Response Refusal(int status, const char* reason) {
  return net::TextResponse(
      status, fmt::format(R"({{"kind":"Status","apiVersion":"v1","code":{},"reason":"{}"}})",
                          status, reason));
}

net::Response Found(const Json& object) { return net::TextResponse(200, object.Serialize()); }

// RFC 7386.
void Merge(Json* into, const Json& patch) {
  for (const auto& [key, value] : patch.members()) {
    if (value.is_null()) {
      into->Erase(key);
    } else if (value.is_object()) {
      Merge(into->ObjectAt(key).value(), value);
    } else {
      into->Set(key, value);
    }
  }
}

}  // namespace

ObjectStore::ObjectStore(net::IoThread& io, TaskRunner& runner) {
  server_ = net::HttpServer::Start(
                io, runner, {.address = {.host = "127.0.0.1"}},
                [this](const net::Request& request, const net::HttpServer::Reply& reply) {
                  if (hook_) hook_(request);
                  reply(Answer(request));
                })
                .value();
}

Config ObjectStore::config() const { return {.server = {.address = server_->address()}}; }

const Json* ObjectStore::Find(const std::string& path) const {
  const auto found = objects_.find(path);
  return found == objects_.end() ? nullptr : &found->second;
}

void ObjectStore::Put(const std::string& path, Json object) {
  object.ObjectAt("metadata")
      .value()
      ->Set("resourceVersion", Json::String(std::to_string(++version_)));
  objects_[path] = std::move(object);
}

net::Response ObjectStore::Answer(const net::Request& request) {
  if (request.method == "POST") return Create(request);
  const std::string path(request.path());
  // Of objects that have one manager: what it says is what there is.
  const bool applied = request.headers.Get("Content-Type").find("apply-patch") != std::string::npos;
  const Json* found = Find(path);
  if (applied) {
    Json body = ParseJson(request.body).value();
    const Json* wanted = body.Find("metadata")->Find("resourceVersion");
    if (wanted != nullptr &&
        (found == nullptr || !(*wanted == *found->Find("metadata")->Find("resourceVersion")))) {
      return Refusal(409, "Conflict");
    }
    ++writes_;
    Put(path, std::move(body));
    found = Find(path);
  }
  if (found == nullptr) return Refusal(404, "NotFound");
  const bool patch = request.method == "PATCH" && !applied;
  return patch ? Patch(request, *found) : Found(*found);
}

net::Response ObjectStore::Create(const net::Request& request) {
  Json object = ParseJson(request.body).value();
  const std::string path =
      fmt::format("{}/{}", request.path(), object.Find("metadata")->StringAt("name").value());
  if (Find(path) != nullptr) return Refusal(409, "AlreadyExists");
  ++writes_;
  Put(path, std::move(object));
  return Found(*Find(path));
}

net::Response ObjectStore::Patch(const net::Request& request, Json object) {
  const Json patch = ParseJson(request.body).value();
  if (patch.is_array()) {
    auto patched = ApplyPatch(std::move(object), patch.items());
    if (!patched.ok()) return Refusal(422, "Invalid");
    object = *std::move(patched);
  } else {
    const Json* metadata = patch.Find("metadata");
    const Json* wanted = metadata == nullptr ? nullptr : metadata->Find("resourceVersion");
    if (wanted != nullptr && !(*wanted == *object.Find("metadata")->Find("resourceVersion"))) {
      return Refusal(409, "Conflict");
    }
    Merge(&object, patch);
  }
  ++writes_;
  const std::string path(request.path());
  Put(path, std::move(object));
  return Found(*Find(path));
}

}  // namespace tessera::kube::testing
