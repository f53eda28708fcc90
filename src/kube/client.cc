// SPDX-License-Identifier: Apache-2.0
#include "src/kube/client.h"

#include <algorithm>
#include <random>
#include <string_view>
#include <utility>

#include "src/base/version.h"
#include "src/formats/wire_reader.h"
#include "src/kube/api_error.h"
#include "src/kube/request_queue.h"
#include "src/net/http.h"

namespace tessera::kube {
namespace {

std::string_view ContentTypeOf(PatchKind kind) {
  switch (kind) {
    case PatchKind::kJson:
      return "application/json-patch+json";
    case PatchKind::kMerge:
      return "application/merge-patch+json";
    case PatchKind::kStrategicMerge:
      return "application/strategic-merge-patch+json";
    case PatchKind::kApply:
      return "application/apply-patch+yaml";
  }
  CheckFailed(__FILE__, __LINE__, "unknown patch kind");
}

// Builds "a=b&c=d" and skips empty values.
class QueryBuilder {
 public:
  QueryBuilder& Add(std::string_view key, std::string_view value) {
    if (value.empty()) return *this;
    if (!text_.empty()) text_ += '&';
    text_.append(key).append("=").append(net::PercentEncode(value));
    return *this;
  }
  std::string AppendTo(std::string path) const {
    return text_.empty() ? path : std::move(path) + "?" + text_;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

net::Request MakeRequest(std::string method, std::string target,
                         Encoding encoding = Encoding::kJson) {
  net::Request request{.method = std::move(method), .target = std::move(target)};
  request.headers.Set("Accept", AcceptOf(encoding));
  return request;
}

// An Accept header that makes the server reduce objects to their metadata. `kind` is
// PartialObjectMetadata, or PartialObjectMetadataList for a list.
std::string AcceptOfMetadata(Encoding encoding, std::string_view kind) {
  const auto media = [kind](std::string_view type) {
    return fmt::format("{};as={};g=meta.k8s.io;v=v1", type, kind);
  };
  if (encoding == Encoding::kJson) return media(kJsonType);
  return media(kProtobufType) + ", " + media(kJsonType);
}

Json JsonOf(const DeleteOptions& options) {
  Json preconditions = Json::MakeObject();
  if (!options.uid.empty()) preconditions.Set("uid", Json::String(options.uid.str()));
  if (!options.resource_version.empty()) {
    preconditions.Set("resourceVersion", Json::String(options.resource_version));
  }
  Json body = Json::MakeObject(
      {{"apiVersion", Json::String("v1")}, {"kind", Json::String("DeleteOptions")}});
  if (!preconditions.members().empty()) body.Set("preconditions", std::move(preconditions));
  if (!options.propagation.empty()) {
    body.Set("propagationPolicy", Json::String(options.propagation));
  }
  if (options.dry_run) body.Set("dryRun", Json::Strings({"All"}));
  return body;
}

// The reference of `object`, which the caller applies.
Result<ObjectRef> RefOf(const ResourceType& type, const Json& object, std::string subresource) {
  const Json* metadata = object.Find("metadata");
  const auto text = [metadata](std::string_view key) {
    return metadata == nullptr ? std::string() : metadata->StringAt(key).value_or("");
  };
  ObjectRef ref{type, text("name"), text("namespace"), std::move(subresource)};
  if (ref.name.empty()) {
    return Error(Code::kInvalidArgument, "cannot apply an object of {}: metadata.name is missing",
                 type.plural);
  }
  if (type.namespaced && ref.ns.empty()) {
    return Error(Code::kInvalidArgument, "cannot apply {} {}: metadata.namespace is missing",
                 type.plural, ref.name);
  }
  return ref;
}

net::Request WithBody(net::Request request, const Json& body, std::string_view content_type) {
  request.headers.Set("Content-Type", std::string(content_type));
  request.body = body.Serialize();
  return request;
}

// The key of a flow: API Priority and Fairness classifies requests by user, verb and resource.
std::string FlowOf(std::string_view verb, const ResourceType& type, std::string_view subresource) {
  return fmt::format("{} {}.{}/{}", verb, type.plural, type.group, subresource);
}

Status CheckAnswer(const Result<net::Response>& answer) {
  if (!answer.ok()) return answer.status();
  if (answer->status < 200 || answer->status > 299) return ErrorOf(*answer);
  return Status::Ok();
}

Result<Json> BodyOf(const Result<net::Response>& answer, size_t max_body) {
  RETURN_IF_ERROR(CheckAnswer(answer));
  return ParseJson(answer->body, {.max_bytes = max_body});
}

Result<ListPage> JsonPage(Result<Json> body) {
  if (!body.ok()) return body.status();
  Json* items = body->Find("items");
  const Json* metadata = body->Find("metadata");
  if (metadata == nullptr || !metadata->is_object()) {
    return Error(Code::kInvalidArgument, "the response is not a list");
  }
  ListPage page;
  // An empty list may be null.
  if (items != nullptr && items->is_array()) {
    page.items.reserve(items->items().size());
    for (Json& item : items->items()) page.items.emplace_back(std::move(item));
  }
  page.resource_version = metadata->StringAt("resourceVersion").value_or("");
  page.continue_token = metadata->StringAt("continue").value_or("");
  return page;
}

// Every list message of the API has its ListMeta in field 1 and its items in field 2.
Result<ListPage> ProtobufPage(std::string_view body) {
  ASSIGN_OR_RETURN(const Envelope envelope, OpenEnvelope(body));
  ListPage page;
  WireReader list(envelope.message);
  while (list.Next()) {
    if (list.field() == 2) page.items.emplace_back(list.Bytes());
    if (list.field() != 1) continue;
    WireReader metadata(list.Bytes());
    while (metadata.Next()) {
      if (metadata.field() == 2) page.resource_version = metadata.Bytes();
      if (metadata.field() == 3) page.continue_token = metadata.Bytes();
    }
    RETURN_IF_ERROR(metadata.status());
  }
  RETURN_IF_ERROR(list.status());
  return page;
}

Result<ListPage> PageOf(const Result<net::Response>& answer, size_t max_body) {
  RETURN_IF_ERROR(CheckAnswer(answer));
  if (EncodingOf(answer->headers.Get("Content-Type")) == Encoding::kProtobuf) {
    return ProtobufPage(answer->body);
  }
  return JsonPage(ParseJson(answer->body, {.max_bytes = max_body}));
}

}  // namespace

ClientOptions ClientOptionsFor(std::string_view program) {
  ClientOptions options;
  options.user_agent = std::string(program) + "/" + std::string(kTesseraVersion);
  return options;
}

std::string QueryString(const ListQuery& query) {
  QueryBuilder builder;
  builder.Add("labelSelector", query.label_selector).Add("fieldSelector", query.field_selector);
  builder.Add("continue", query.continue_token);
  if (query.limit > 0) builder.Add("limit", std::to_string(query.limit));
  // The server rejects a resource version beside a continue token, which contains the version.
  if (query.continue_token.empty()) builder.Add("resourceVersion", query.resource_version);
  return builder.text();
}

struct Client::Core {
  Core(TaskRunner& runner, std::unique_ptr<ApiTransport> transport, Config c, Options o)
      : config(std::move(c)),
        options(std::move(o)),
        queue(runner, std::move(transport), config, options) {}

  const Config config;
  const Options options;
  std::mt19937_64 seeds{options.seed.value_or(std::random_device{}())};
  RequestQueue queue;
};

Client::Client(TaskRunner& runner, std::unique_ptr<ApiTransport> transport, Config config,
               Options options)
    : core_(std::make_shared<Core>(runner, std::move(transport), std::move(config),
                                   std::move(options))) {}

Client::Client(net::IoThread& io, TaskRunner& runner, Config config, Options options)
    : Client(runner,
             MakeHttpTransport(io, runner, config, std::max<size_t>(4, options.max_in_flight)),
             config, options) {}

Client::~Client() = default;

void Client::SetToken(std::string token) { core_->queue.SetToken(std::move(token)); }

TaskRunner& Client::runner() { return core_->queue.runner(); }
uint64_t Client::NextSeed() { return core_->seeds(); }
const Config& Client::config() const { return core_->config; }

Operation Client::SendForObject(net::Request request, const ObjectRef& object, bool repeatable,
                                OnObject on_done, BeforeSend before_send) {
  const std::string request_line = request.method + " " + std::string(request.path());
  std::string flow = FlowOf(request.method, object.type, object.subresource);
  return core_->queue.Submit(
      std::move(request), std::move(flow), repeatable,
      [on_done = std::move(on_done), request_line,
       max_body = core_->options.max_body](const Result<net::Response>& answer) {
        on_done(BodyOf(answer, max_body).Annotate(request_line));
      },
      std::move(before_send));
}

Operation Client::Get(const ObjectRef& object, OnObject on_done) {
  return SendForObject(MakeRequest("GET", PathOf(object)), object, /*repeatable=*/true,
                       std::move(on_done));
}

Operation Client::List(const ListQuery& query, OnPage on_done) {
  const std::string path = CollectionPath(query.type, query.ns);
  net::Request request = MakeRequest("GET", path + "?" + QueryString(query), query.encoding);
  if (query.metadata_only) {
    request.headers.Set("Accept", AcceptOfMetadata(query.encoding, "PartialObjectMetadataList"));
  }
  return core_->queue.Submit(
      std::move(request), FlowOf("LIST", query.type, ""), /*repeatable=*/true,
      [on_done = std::move(on_done), path,
       max_body = core_->options.max_body](const Result<net::Response>& answer) {
        on_done(PageOf(answer, max_body).Annotate("GET " + path));
      });
}

Operation Client::Create(const ObjectRef& object, const Json& body, OnObject on_done,
                         const CreateOptions& options) {
  QueryBuilder query;
  if (options.dry_run) query.Add("dryRun", "All");
  if (options.strict) query.Add("fieldValidation", "Strict");
  // A subresource (binding, eviction, token) is created under the path of its object.
  std::string path =
      object.subresource.empty() ? CollectionPath(object.type, object.ns) : PathOf(object);
  net::Request request = MakeRequest("POST", query.AppendTo(std::move(path)));
  return SendForObject(WithBody(std::move(request), body, "application/json"), object,
                       /*repeatable=*/false, std::move(on_done), options.before_send);
}

Operation Client::Replace(const ObjectRef& object, const Json& body, OnObject on_done) {
  return SendForObject(WithBody(MakeRequest("PUT", PathOf(object)), body, "application/json"),
                       object, /*repeatable=*/true, std::move(on_done));
}

Operation Client::Patch(const ObjectRef& object, PatchKind kind, const Json& body,
                        const PatchOptions& options, OnObject on_done) {
  QueryBuilder query;
  query.Add("fieldManager", options.field_manager);
  if (options.force) query.Add("force", "true");
  if (options.dry_run) query.Add("dryRun", "All");
  net::Request request = MakeRequest("PATCH", query.AppendTo(PathOf(object)));
  return SendForObject(WithBody(std::move(request), body, ContentTypeOf(kind)), object,
                       kind != PatchKind::kJson, std::move(on_done), options.before_send);
}

Operation Client::Apply(const ResourceType& type, const Json& object, PatchOptions options,
                        OnObject on_done, std::string subresource) {
  const auto ref = RefOf(type, object, std::move(subresource));
  if (ref.ok()) return Patch(*ref, PatchKind::kApply, object, options, std::move(on_done));
  // The error goes through the queue, so that it arrives later, like any other error, and not at
  // all if the operation is cancelled.
  options.before_send = [status = ref.status()] { return status; };
  return Patch({type, "", "", ""}, PatchKind::kApply, object, options,
               [on_done = std::move(on_done), status = ref.status()](const Result<Json>&) {
                 on_done(status);
               });
}

Operation Client::Delete(const ObjectRef& object, const DeleteOptions& options, OnObject on_done) {
  return SendForObject(
      WithBody(MakeRequest("DELETE", PathOf(object)), JsonOf(options), "application/json"), object,
      /*repeatable=*/true, std::move(on_done));
}

Operation Client::Evict(const std::string& ns, const std::string& pod, const DeleteOptions& options,
                        OnObject on_done, BeforeSend before_send) {
  const Json body = Json::MakeObject(
      {{"apiVersion", Json::String("policy/v1")},
       {"kind", Json::String("Eviction")},
       {"metadata",
        Json::MakeObject({{"name", Json::String(pod)}, {"namespace", Json::String(ns)}})},
       {"deleteOptions", JsonOf(options)}});
  return Create({kPods, pod, ns, "eviction"}, body, std::move(on_done),
                {.before_send = std::move(before_send)});
}

Operation Client::GetDocument(const std::string& path, OnObject on_done) {
  return SendForObject(MakeRequest("GET", path), {{"", "", "", false}, "", "", ""},
                       /*repeatable=*/true, std::move(on_done));
}

Operation Client::Stream(const std::string& target, const ListQuery& query,
                         const net::Deadlines& deadlines, net::StreamHandler handler) {
  net::Request request = MakeRequest("GET", target, query.encoding);
  if (query.metadata_only) {
    request.headers.Set("Accept", AcceptOfMetadata(query.encoding, "PartialObjectMetadata"));
  } else if (query.encoding == Encoding::kProtobuf) {
    // Watch events have their own media type, unlike the objects in them.
    request.headers.Set("Accept", fmt::format("{};stream=watch, {}", kProtobufType, kJsonType));
  }
  return core_->queue.Stream(std::move(request), deadlines, std::move(handler));
}

}  // namespace tessera::kube
