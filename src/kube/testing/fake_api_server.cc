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

constexpr std::string_view kVersion = "1000000";  // of fixed lists

net::Response ErrorResponse(int status, std::string_view reason) {
  return net::JsonResponse(
      status, fmt::format(R"({{"kind":"Status","apiVersion":"v1","status":"Failure","message":)"
                          R"("refused by the test","reason":"{}","code":{}}})",
                          reason, status));
}

net::Response ProtobufResponse(std::string body, std::string_view parameter = "") {
  net::Response response{.body = std::move(body)};
  response.headers.Set("Content-Type", fmt::format("{}{}", kProtobufType, parameter));
  return response;
}

net::Response ObjectResponse(const Json& object) {
  return net::TextResponse(200, object.Serialize());
}

// Applies a JSON merge patch (RFC 7386).
void ApplyMergePatch(Json* into, const Json& patch) {
  for (const auto& [key, value] : patch.members()) {
    if (value.is_null()) {
      into->Erase(key);
    } else if (value.is_object()) {
      ApplyMergePatch(into->EnsureObject(key).value(), value);
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

// Whether the selectors in the request match the object. Supports lists of "key=value",
// "key!=value" and "key", which means that the label exists.
bool Selects(const net::Request& request, const Json& object) {
  const Json& metadata = *object.Find("metadata");
  const auto matches = [](std::string_view selector, const Json* values) {
    if (selector.empty()) return true;
    for (const std::string_view term : Split(selector, ',')) {
      const size_t equals = term.find('=');
      if (values == nullptr) return false;
      if (equals == std::string_view::npos) {
        if (values->Find(term) == nullptr) return false;
        continue;
      }
      const bool differs = equals > 0 && term[equals - 1] == '!';
      const std::string_view key = term.substr(0, equals - (differs ? 1 : 0));
      const bool equal = values->StringAt(key).value_or("") == term.substr(equals + 1);
      if (equal == differs) return false;
    }
    return true;
  };
  const auto field = [&object](std::string_view member, std::string_view name) {
    const Json* found = object.Find(member);
    return Json::String(found == nullptr ? "" : found->StringAt(name).value_or(""));
  };
  const Json fields =
      Json::MakeObject({{"metadata.name", field("metadata", "name")},
                        {"spec.nodeName", field("spec", "nodeName")},
                        {"involvedObject.kind", field("involvedObject", "kind")},
                        {"involvedObject.name", field("involvedObject", "name")},
                        {"type", Json::String(object.StringAt("type").value_or(""))},
                        {"status.phase", field("status", "phase")}});
  return matches(request.Query("labelSelector").value_or(""), metadata.Find("labels")) &&
         matches(request.Query("fieldSelector").value_or(""), &fields);
}

std::string EventLine(std::string_view type, const Json& object) {
  return fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object.Serialize());
}

// Whether `collection` is the collection of the object's namespace or the collection over all
// namespaces.
bool IsInCollection(std::string_view collection, std::string_view path) {
  path = path.substr(0, path.rfind('/'));
  if (path == collection) return true;
  const size_t begin = path.find("/namespaces/");
  const size_t end = begin == path.npos ? begin : path.find('/', begin + 12);
  if (end == path.npos) return false;
  return std::string(path.substr(0, begin)).append(path.substr(end)) == collection;
}

// The range of a list of `size` objects that a request gets, and the token for the next page.
struct PageRange {
  PageRange(size_t size, const net::Request& request) {
    const auto number = [&](std::string_view name, size_t otherwise) {
      const Result<int64_t> value = ParseInt(request.Query(name).value_or(""));
      return value.ok() ? static_cast<size_t>(*value) : otherwise;
    };
    begin = std::min(number("continue", 0), size);
    end = std::min(size, begin + number("limit", size));
    if (end < size) continue_token = std::to_string(end);
  }
  size_t begin, end;
  std::string continue_token;
};

std::string PageOf(const std::string& kind, const std::vector<std::string>& all,
                   const net::Request& request) {
  const PageRange range(all.size(), request);
  WireWriter page;
  page.Bytes(1, WireWriter().Bytes(2, kVersion).Bytes(3, range.continue_token).text());
  for (size_t i = range.begin; i < range.end; ++i) page.Bytes(2, all[i]);
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

FakeApiServer::FakeApiServer(net::IoThread& io, TaskRunner& runner, const net::Address& address) {
  net::HttpServer::Options options{.address = address};
  options.limits.handler_timeout = std::chrono::hours(1);
  options.limits.max_connections = 4096;  // includes watches of destroyed clients
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
  for (const auto& watch : std::exchange(watches_, {})) {
    watch.reply(ProtobufResponse("", ";stream=watch"));
  }
}

const Json* FakeApiServer::Find(const std::string& path) const {
  const auto found = objects_.find(path);
  return found == objects_.end() ? nullptr : &found->second;
}

void FakeApiServer::Put(const std::string& path, Json object) {
  object.EnsureObject("metadata")
      .value()
      ->Set("resourceVersion", Json::String(std::to_string(++version_)));
  const std::string type = objects_.contains(path) ? "MODIFIED" : "ADDED";
  objects_[path] = object;
  RecordChange(type, path, std::move(object));
}

void FakeApiServer::PutAgent(const std::string& pod, const std::string& node) {
  Put(fmt::format("/api/v1/namespaces/tessera-system/pods/{}", pod),
      *ParseJson(fmt::format(
          R"({{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{0}",
          "namespace":"tessera-system","uid":"{0}",
          "labels":{{"app.kubernetes.io/name":"tessera-agent"}}}},
          "spec":{{"nodeName":"{1}","containers":[{{"name":"agent"}}]}}}})",
          pod, node)));
}

void FakeApiServer::Remove(const std::string& path) {
  const auto found = objects_.find(path);
  if (found == objects_.end()) return;
  Json last = std::move(found->second);
  objects_.erase(found);
  last.Find("metadata")->Set("resourceVersion", Json::String(std::to_string(++version_)));
  RecordChange("DELETED", path, std::move(last));
}

void FakeApiServer::RecordChange(std::string type, const std::string& path, Json object) {
  changes_.push_back({version_, std::move(type), path, std::move(object)});
  std::erase_if(watches_, [this](const HeldWatch& watch) {
    return !collections_.contains(Target(watch.request.path()).plural) &&
           SendChanges(watch.request, watch.reply);
  });
}

bool FakeApiServer::SendChanges(const net::Request& request,
                                const net::HttpServer::Reply& reply) const {
  const int64_t since = ParseInt(request.Query("resourceVersion").value_or("")).value_or(0);
  std::string events;
  for (const Change& change : changes_) {
    const bool matches = change.version > since && IsInCollection(request.path(), change.path);
    if (matches && Selects(request, change.object)) events += EventLine(change.type, change.object);
  }
  if (events.empty()) return false;
  reply(net::JsonResponse(200, std::move(events)));
  return true;
}

void FakeApiServer::AnswerObjects(const net::Request& request,
                                  const net::HttpServer::Reply& reply) {
  const std::string version = std::to_string(version_);
  const bool stream = request.Query("watch").has_value();
  if (stream && request.Query("sendInitialEvents") != "true") {
    if (!SendChanges(request, reply)) watches_.push_back({request, reply});
    return;
  }
  Json items = Json::MakeArray();
  std::string events;
  for (const auto& [path, object] : objects_) {
    if (!IsInCollection(request.path(), path) || !Selects(request, object)) continue;
    if (stream) events += EventLine("ADDED", object);
    if (!stream) items.Append(object);
  }
  Json metadata = Json::MakeObject({{"resourceVersion", Json::String(version)}});
  if (!stream) {
    const PageRange range(items.items().size(), request);
    Json::Array& all = items.items();
    all.erase(all.begin() + range.end, all.end());
    all.erase(all.begin(), all.begin() + range.begin);
    if (!range.continue_token.empty()) metadata.Set("continue", Json::String(range.continue_token));
    return reply(net::JsonResponse(
        200, Json::MakeObject({{"metadata", metadata}, {"items", std::move(items)}}).Serialize()));
  }
  Json end = Json::MakeObject({{"metadata", metadata}});
  end.Find("metadata")
      ->Set("annotations", Json::MakeObject({{"k8s.io/initial-events-end", Json::String("true")}}));
  reply(net::JsonResponse(200, events + EventLine("BOOKMARK", end)));
}

void FakeApiServer::Answer(const net::Request& request, const net::HttpServer::Reply& reply) {
  paths_.emplace_back(request.path());
  if (hook_) hook_(request);
  if (fault_ && fault_(request, reply)) return;
  const Target target(request.path());
  if (const auto refused = refused_.find(target.plural); refused != refused_.end()) {
    return reply(ErrorResponse(refused->second, refused->second == 403 ? "Forbidden" : "Invalid"));
  }
  if (!token_.empty() && request.headers.Get("Authorization") != "Bearer " + token_) {
    return reply(ErrorResponse(401, "Unauthorized"));
  }
  const bool is_read = request.method == "GET";
  // Discovery documents, such as "/apis/apps/v1", are objects that a test puts.
  const bool is_document = target.plural.empty();
  if (!is_read || target.names_object || is_document) return reply(AnswerObject(request));
  AnswerCollection(request, target, reply);
}

void FakeApiServer::AnswerCollection(const net::Request& request, const Target& target,
                                     const net::HttpServer::Reply& reply) {
  if (!collections_.contains(target.plural)) return AnswerObjects(request, reply);
  const auto& [kind, all] = collections_[target.plural];
  std::vector<std::string> of_namespace;
  for (size_t i = 0; !target.ns.empty() && i < all.size(); ++i) {
    ObjectMeta meta;
    if (DecodeMeta(RawObject(std::string_view(all[i])), &meta).ok() && meta.ns == target.ns) {
      of_namespace.push_back(all[i]);
    }
  }
  const std::vector<std::string>& selected = target.ns.empty() ? all : of_namespace;
  if (!request.Query("watch")) return reply(ProtobufResponse(PageOf(kind, selected, request)));
  if (request.Query("sendInitialEvents") != "true") return watches_.push_back({request, reply});
  reply(ProtobufResponse(StreamOf(kind, selected), ";stream=watch"));
}

net::Response FakeApiServer::AnswerObject(const net::Request& request) {
  if (request.method == "POST") return Create(request);
  if (request.headers.Get("Content-Type").find("apply-patch") != std::string::npos) {
    return Apply(request);
  }
  const Json* found = Find(std::string(request.path()));
  if (found == nullptr) return ErrorResponse(404, "NotFound");
  if (request.method == "DELETE") return Delete(std::string(request.path()));
  return request.method == "PATCH" ? Patch(request, *found) : ObjectResponse(*found);
}

net::Response FakeApiServer::Delete(const std::string& path) {
  ++writes_;
  Json object = *Find(path);
  Json* metadata = object.Find("metadata");
  const Json* finalizers = metadata->Find("finalizers");
  if (finalizers == nullptr || finalizers->items().empty()) {
    Remove(path);
    return ObjectResponse(object);
  }
  metadata->Set("deletionTimestamp", Json::String("2026-01-01T00:00:00Z"));
  Put(path, std::move(object));
  return ObjectResponse(*Find(path));
}

net::Response FakeApiServer::Create(const net::Request& request) {
  Json object = ParseJson(request.body).value();
  const std::string path =
      fmt::format("{}/{}", request.path(), object.Find("metadata")->StringAt("name").value());
  if (Find(path) != nullptr) return ErrorResponse(409, "AlreadyExists");
  return Write(path, std::move(object));
}

// Treats the client as the only manager of the object: the applied object replaces it.
net::Response FakeApiServer::Apply(const net::Request& request) {
  std::string path(request.path());
  Json object = ParseJson(request.body).value();
  constexpr std::string_view kStatus = "/status";
  if (path.ends_with(kStatus) && Find(path) == nullptr) {
    path.resize(path.size() - kStatus.size());
    if (Find(path) == nullptr) return ErrorResponse(404, "NotFound");
    Json whole = *Find(path);
    whole.Set("status", *object.Find("status"));
    return Write(path, std::move(whole));
  }
  const Json* before = Find(path);
  if (Conflicts(object, before)) return ErrorResponse(409, "Conflict");
  const std::string text = object.Serialize();
  Json& metadata = *object.EnsureObject("metadata").value();
  for (const char* key : {"uid", "finalizers", "deletionTimestamp"}) {
    const Json* old = before == nullptr ? nullptr : before->Find("metadata")->Find(key);
    if (old != nullptr) metadata.Set(key, *old);
  }
  if (metadata.Find("uid") == nullptr) {
    metadata.Set("uid", Json::String(fmt::format("uid-{}", version_)));
  }
  metadata.Set("managedFields",
               Json::MakeArray({Json::MakeObject(
                   {{"manager", Json::String(request.Query("fieldManager").value_or(""))},
                    {"operation", Json::String("Apply")},
                    {"fieldsV1", Json::MakeObject({{text, Json::MakeObject()}})}})}));
  return Write(path, std::move(object));
}

net::Response FakeApiServer::Patch(const net::Request& request, Json object) {
  const Json patch = ParseJson(request.body).value();
  if (patch.is_array()) {
    auto patched = ApplyPatch(std::move(object), patch.items());
    if (!patched.ok()) return ErrorResponse(422, "Invalid");
    object = *std::move(patched);
  } else {
    if (Conflicts(patch, &object)) return ErrorResponse(409, "Conflict");
    ApplyMergePatch(&object, patch);
  }
  return Write(std::string(request.path()), std::move(object));
}

net::Response FakeApiServer::Write(const std::string& path, Json object) {
  ++writes_;
  const Json* metadata = object.Find("metadata");
  const Json* finalizers = metadata == nullptr ? nullptr : metadata->Find("finalizers");
  if (metadata != nullptr && metadata->Find("deletionTimestamp") != nullptr &&
      (finalizers == nullptr || finalizers->is_null() || finalizers->items().empty())) {
    Remove(path);
    return ObjectResponse(object);
  }
  Put(path, std::move(object));
  return ObjectResponse(*Find(path));
}

}  // namespace tessera::kube::testing
