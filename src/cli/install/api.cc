// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/api.h"

#include <optional>
#include <utility>

#include "src/cli/session.h"

namespace tessera::cli {
namespace {

constexpr const char* kFieldManager = "tessera";
constexpr Duration kPollPause = std::chrono::milliseconds(100);

}  // namespace

std::string ObjectId::Text() const {
  return ns.empty() ? fmt::format("{} {}", kind, name) : fmt::format("{} {}/{}", kind, ns, name);
}

ObjectId IdOf(const Json& object) {
  const Json* metadata = object.Find("metadata");
  const auto of = [](const Json* from, const char* key) {
    return from == nullptr || !from->is_object() ? "" : from->StringAt(key).value_or("");
  };
  return {of(&object, "apiVersion"), of(&object, "kind"), of(metadata, "namespace"),
          of(metadata, "name")};
}

InstallApi::InstallApi(kube::Config config, Duration timeout)
    : client_(io_, runner_, std::move(config), ClientOptionsOf(timeout)), types_(client_) {}

template <typename T>
Result<T> InstallApi::Await(
    const std::function<kube::Operation(std::function<void(Result<T>)>)>& start) {
  std::optional<Result<T>> answer;
  kube::Operation operation;
  runner_.Post([&] {
    operation = start([&](Result<T> result) {
      answer = std::move(result);
      runner_.Quit();
    });
  });
  runner_.Run();
  return *std::move(answer);
}

void InstallApi::Sleep(Duration duration) {
  runner_.PostDelayed(duration, [this] { runner_.Quit(); });
  runner_.Run();
}

Result<kube::ResourceType> InstallApi::TypeOf(const std::string& api_version,
                                              const std::string& kind) {
  return Await<kube::ResourceType>(
      [&](auto done) { return types_.Find(api_version, kind, std::move(done)); });
}

Result<kube::ObjectRef> InstallApi::RefOf(const ObjectId& id) {
  ASSIGN_OR_RETURN(const kube::ResourceType type, TypeOf(id.api_version, id.kind));
  return kube::ObjectRef{type, id.name, type.namespaced ? id.ns : "", ""};
}

Result<Json> InstallApi::Get(const ObjectId& id) {
  ASSIGN_OR_RETURN(const kube::ObjectRef object, RefOf(id));
  return Await<Json>([&](auto done) { return client_.Get(object, std::move(done)); });
}

Result<Json> InstallApi::Apply(const Json& object, bool dry_run) {
  const ObjectId id = IdOf(object);
  Result<kube::ResourceType> type = TypeOf(id.api_version, id.kind);
  if (!type.ok()) return type.status().Annotate(id.Text());
  return Await<Json>([&](auto done) {
           return client_.Apply(*type, object,
                                {.field_manager = kFieldManager, .force = true, .dry_run = dry_run},
                                std::move(done));
         })
      .Annotate(id.Text());
}

Status InstallApi::Delete(const ObjectId& id) {
  const Result<kube::ObjectRef> object = RefOf(id);
  Status status = object.status();
  if (object.ok()) {
    status = Await<Json>([&](auto done) {
               return client_.Delete(*object, {.propagation = kube::Propagation::kBackground},
                                     std::move(done));
             }).status();
  }
  return status.code() == Code::kNotFound ? Status::Ok() : status.Annotate(id.Text());
}

Result<std::vector<Json>> InstallApi::List(const std::string& api_version, const std::string& kind,
                                           const std::string& label_selector,
                                           const std::string& ns) {
  std::vector<Json> objects;
  const Result<kube::ResourceType> type = TypeOf(api_version, kind);
  if (type.status().code() == Code::kNotFound) return objects;
  RETURN_IF_ERROR(type.status());
  kube::ListQuery query{.type = *type, .ns = ns, .label_selector = label_selector};
  do {
    ASSIGN_OR_RETURN(const kube::ListPage page, Await<kube::ListPage>([&](auto done) {
                       return client_.List(query, std::move(done));
                     }));
    for (const kube::RawObject& item : page.items) {
      if (item.json() == nullptr || !item.json()->is_object()) continue;
      Json object = *item.json();
      object.Set("apiVersion", Json::String(api_version));
      object.Set("kind", Json::String(kind));
      objects.push_back(std::move(object));
    }
    query.continue_token = page.continue_token;
  } while (!query.continue_token.empty());
  return objects;
}

Result<Json> InstallApi::Document(const std::string& path) {
  return Await<Json>([&](auto done) { return client_.GetDocument(path, std::move(done)); });
}

Status InstallApi::Patch(const kube::ObjectRef& object, kube::PatchKind kind, const Json& patch) {
  return Await<Json>([&](auto done) {
           return client_.Patch(object, kind, patch, {.field_manager = kFieldManager},
                                std::move(done));
         })
      .status();
}

Status InstallApi::WaitUntil(MonotonicTime end, const std::function<Result<bool>()>& is_done) {
  for (;;) {
    ASSIGN_OR_RETURN(const bool done, is_done());
    if (done) return Status::Ok();
    if (Now() + kPollPause > end) return Error(Code::kDeadlineExceeded, "timeout");
    Sleep(kPollPause);
  }
}

}  // namespace tessera::cli
