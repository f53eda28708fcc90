// SPDX-License-Identifier: Apache-2.0
#include "src/kube/testing/fake_api_server.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"
#include "src/kube/objects.h"
#include "src/kube/raw_object.h"
#include "src/kube/testing/json_patch.h"
#include "src/kube/testing/wire_writer.h"

namespace tessera::kube::testing {
namespace {

constexpr std::string_view kVersion = "1000000";

net::Response Refusal(int status, std::string_view reason) {
  net::Response response = net::TextResponse(
      status, fmt::format(R"({{"kind":"Status","apiVersion":"v1","status":"Failure","message":)"
                          R"("refused by the test","reason":"{}","code":{}}})",
                          reason, status));
  response.headers.Set("Content-Type", "application/json");
  return response;
}

net::Response Protobuf(std::string body, std::string_view parameter = "") {
  net::Response response{.body = std::move(body)};
  response.headers.Set("Content-Type", fmt::format("{}{}", kProtobufType, parameter));
  return response;
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

// Whether `change` names a version other than the object's.
bool Conflicts(const Json& change, const Json* object) {
  const Json* metadata = change.Find("metadata");
  const Json* version = metadata == nullptr ? nullptr : metadata->Find("resourceVersion");
  return version != nullptr &&
         (object == nullptr || !(*version == *object->Find("metadata")->Find("resourceVersion")));
}

std::string PageOf(const std::string& kind, const std::vector<std::string>& all,
                   const net::Request& request) {
  const auto number = [&](std::string_view name, size_t otherwise) {
    const Result<int64_t> value = ParseInt(request.Query(name).value_or(""));
    return value.ok() ? static_cast<size_t>(*value) : otherwise;
  };
  const size_t begin = std::min(number("continue", 0), all.size());
  const size_t end = std::min(all.size(), begin + number("limit", all.size()));
  const std::string more = end < all.size() ? std::to_string(end) : "";
  WireWriter page;
  page.Bytes(1, WireWriter().Bytes(2, kVersion).Bytes(3, more).text());
  for (size_t i = begin; i < end; ++i) page.Bytes(2, all[i]);
  return Enveloped(kind + "List", page.text());
}

std::string StreamOf(const std::string& kind, const std::vector<std::string>& messages) {
  std::string stream;
  for (const std::string& message : messages) stream += WatchFrame("ADDED", kind, message);
  const std::string meta =
      WireWriter().Bytes(6, kVersion).Entry(12, "k8s.io/initial-events-end", "true").text();
  return stream + WatchFrame("BOOKMARK", kind, WireWriter().Bytes(1, meta).text());
}

}  // namespace

// /api/v1/[namespaces/NS/]PLURAL[/NAME…] or /apis/GROUP/VERSION/…
struct FakeApiServer::Target {
  explicit Target(std::string_view path) {
    std::vector<std::string_view> parts = Split(path.substr(1), '/');
    const size_t prefix = parts[0] == "apis" ? 3 : 2;
    parts.erase(parts.begin(), parts.begin() + std::min(prefix, parts.size()));
    if (parts.size() > 2 && parts[0] == "namespaces") {
      ns = parts[1];
      parts.erase(parts.begin(), parts.begin() + 2);
    }
    if (!parts.empty()) plural = parts[0];
    names_object = parts.size() > 1;
  }
  std::string_view ns;
  std::string plural;
  bool names_object = false;
};

FakeApiServer::FakeApiServer(net::IoThread& io, TaskRunner& runner) {
  net::HttpServer::Options options{.address = {.host = "127.0.0.1"}};
  options.limits.handler = std::chrono::hours(1);
  options.limits.connections = 4096;  // includes watches of destroyed clients
  const auto answer = [this](const net::Request& request, net::HttpServer::Reply reply) {
    Answer(request, reply);
  };
  server_ = net::HttpServer::Start(io, runner, options, answer).value();
}

net::Url FakeApiServer::url() const { return {.address = server_->address()}; }

std::string FakeApiServer::Kubeconfig(const std::string& ns) const {
  return fmt::format(
      "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
      "clusters: [{{name: c, cluster: {{server: \"{}\"}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
      "contexts: [{{name: here, context: {{cluster: c, user: u, namespace: {}}}}}]\n",
      url().ToString(), ns);
}

void FakeApiServer::SetCollection(const std::string& plural, std::string kind,
                                  std::vector<std::string> messages) {
  collections_[plural] = {std::move(kind), std::move(messages)};
}

void FakeApiServer::EndWatches() {
  for (const auto& reply : std::exchange(watches_, {})) reply(Protobuf("", ";stream=watch"));
}

const Json* FakeApiServer::Find(const std::string& path) const {
  const auto found = objects_.find(path);
  return found == objects_.end() ? nullptr : &found->second;
}

void FakeApiServer::Put(const std::string& path, Json object) {
  object.ObjectAt("metadata")
      .value()
      ->Set("resourceVersion", Json::String(std::to_string(++version_)));
  objects_[path] = std::move(object);
}

void FakeApiServer::Answer(const net::Request& request, const net::HttpServer::Reply& reply) {
  paths_.emplace_back(request.path());
  if (hook_) hook_(request);
  if (fault_ && fault_(request, reply)) return;
  const Target target(request.path());
  if (const auto refused = refused_.find(target.plural); refused != refused_.end()) {
    return reply(Refusal(refused->second, refused->second == 403 ? "Forbidden" : "Invalid"));
  }
  if (!token_.empty() && request.headers.Get("Authorization") != "Bearer " + token_) {
    return reply(Refusal(401, "Unauthorized"));
  }
  const bool reads = request.method == "GET";
  // Discovery documents, such as "/apis/apps/v1", are objects that a test puts.
  const bool document = target.plural.empty();
  if (!reads || target.names_object || document) return reply(AnswerObject(request));
  AnswerCollection(request, target, reply);
}

void FakeApiServer::AnswerCollection(const net::Request& request, const Target& target,
                                     const net::HttpServer::Reply& reply) {
  const auto& [kind, all] = collections_[target.plural];
  std::vector<std::string> of_namespace;
  for (size_t i = 0; !target.ns.empty() && i < all.size(); ++i) {
    ObjectMeta meta;
    if (DecodeMeta(RawObject(std::string_view(all[i])), &meta).ok() && meta.ns == target.ns) {
      of_namespace.push_back(all[i]);
    }
  }
  const std::vector<std::string>& selected = target.ns.empty() ? all : of_namespace;
  if (!request.Query("watch")) return reply(Protobuf(PageOf(kind, selected, request)));
  if (request.Query("sendInitialEvents") != "true") return watches_.push_back(reply);
  reply(Protobuf(StreamOf(kind, selected), ";stream=watch"));
}

net::Response FakeApiServer::AnswerObject(const net::Request& request) {
  if (request.method == "POST") return Create(request);
  if (request.headers.Get("Content-Type").find("apply-patch") != std::string::npos) {
    return Apply(request);
  }
  const Json* found = Find(std::string(request.path()));
  if (found == nullptr) return Refusal(404, "NotFound");
  return request.method == "PATCH" ? Patch(request, *found) : Found(*found);
}

net::Response FakeApiServer::Create(const net::Request& request) {
  Json object = ParseJson(request.body).value();
  const std::string path =
      fmt::format("{}/{}", request.path(), object.Find("metadata")->StringAt("name").value());
  if (Find(path) != nullptr) return Refusal(409, "AlreadyExists");
  return Write(path, std::move(object));
}

// Treats the client as the only manager of the object: the applied object replaces it.
net::Response FakeApiServer::Apply(const net::Request& request) {
  const std::string path(request.path());
  Json object = ParseJson(request.body).value();
  if (Conflicts(object, Find(path))) return Refusal(409, "Conflict");
  return Write(path, std::move(object));
}

net::Response FakeApiServer::Patch(const net::Request& request, Json object) {
  const Json patch = ParseJson(request.body).value();
  if (patch.is_array()) {
    auto patched = ApplyPatch(std::move(object), patch.items());
    if (!patched.ok()) return Refusal(422, "Invalid");
    object = *std::move(patched);
  } else {
    if (Conflicts(patch, &object)) return Refusal(409, "Conflict");
    Merge(&object, patch);
  }
  return Write(std::string(request.path()), std::move(object));
}

net::Response FakeApiServer::Write(const std::string& path, Json object) {
  ++writes_;
  Put(path, std::move(object));
  return Found(*Find(path));
}

}  // namespace tessera::kube::testing
