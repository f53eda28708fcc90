// SPDX-License-Identifier: Apache-2.0
#include "src/cli/cluster_client.h"

#include <memory>
#include <optional>
#include <utility>

#include "api/names.h"
#include "src/cli/session.h"
#include "src/kube/pod_page.h"

namespace tessera::cli {
namespace {

constexpr const char* kFieldManager = "tessera";
constexpr Duration kWaitPollInterval = std::chrono::milliseconds(100);

}  // namespace

std::string ObjectId::Text() const {
  return ns.empty() ? fmt::format("{} {}", kind, name) : fmt::format("{} {}/{}", kind, ns, name);
}

ObjectId IdOf(const Json& object) {
  return {TextAt(object, {"apiVersion"}), TextAt(object, {"kind"}),
          TextAt(object, {"metadata", "namespace"}), TextAt(object, {"metadata", "name"})};
}

std::vector<ObjectId> IdsOf(const std::vector<Json>& objects) {
  std::vector<ObjectId> ids;
  for (const Json& object : objects) ids.push_back(IdOf(object));
  return ids;
}

ClusterClient::ClusterClient(kube::Config config, Duration timeout, Duration page_timeout,
                             size_t max_objects)
    : page_timeout_(page_timeout),
      max_objects_(max_objects),
      client_(io_, runner_, std::move(config), ClientOptionsOf(timeout)),
      types_(client_) {}

// --- One after another

template <typename T>
Result<T> ClusterClient::Await(
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

void ClusterClient::Sleep(Duration duration) {
  runner_.PostDelayed(duration, [this] { runner_.Quit(); });
  runner_.Run();
}

Result<kube::ResourceType> ClusterClient::TypeOf(const std::string& api_version,
                                                 const std::string& kind) {
  return Await<kube::ResourceType>(
      [&](auto done) { return types_.Find(api_version, kind, std::move(done)); });
}

Result<kube::ObjectRef> ClusterClient::RefOf(const ObjectId& id) {
  ASSIGN_OR_RETURN(const kube::ResourceType type, TypeOf(id.api_version, id.kind));
  return kube::ObjectRef{type, id.name, type.namespaced ? id.ns : "", ""};
}

Result<Json> ClusterClient::Get(const ObjectId& id) {
  ASSIGN_OR_RETURN(const kube::ObjectRef object, RefOf(id));
  return Get(object);
}

Result<Json> ClusterClient::Get(const kube::ObjectRef& object) {
  return Await<Json>([&](auto done) { return client_.Get(object, std::move(done)); });
}

Result<std::optional<Json>> ClusterClient::Find(const ObjectId& id) {
  Result<Json> object = Get(id);
  if (object.status().code() == Code::kNotFound) return std::optional<Json>();
  RETURN_IF_ERROR(object.status());
  return std::optional(*std::move(object));
}

Result<Json> ClusterClient::Create(const kube::ObjectRef& object, const Json& body) {
  return Await<Json>([&](auto done) { return client_.Create(object, body, std::move(done)); });
}

Result<Json> ClusterClient::Apply(const Json& object, bool dry_run) {
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

Status ClusterClient::Patch(const kube::ObjectRef& object, kube::PatchKind kind,
                            const Json& patch) {
  return Await<Json>([&](auto done) {
           return client_.Patch(object, kind, patch, {.field_manager = kFieldManager},
                                std::move(done));
         })
      .status();
}

Status ClusterClient::Delete(const ObjectId& id) {
  const Result<kube::ObjectRef> object = RefOf(id);
  const Status status = object.ok() ? Delete(*object) : object.status();
  return status.code() == Code::kNotFound ? Status::Ok() : status.Annotate(id.Text());
}

Status ClusterClient::Delete(const kube::ObjectRef& object) {
  return Await<Json>([&](auto done) {
           return client_.Delete(object, {.propagation = kube::kBackgroundDeletion},
                                 std::move(done));
         })
      .status();
}

Result<std::vector<Json>> ClusterClient::List(const std::string& api_version,
                                              const std::string& kind,
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

std::vector<Result<Json>> ClusterClient::GetMetadata(const std::vector<ObjectId>& ids) {
  std::vector<Result<kube::ResourceType>> types;
  for (const ObjectId& id : ids) types.push_back(TypeOf(id.api_version, id.kind));
  std::vector<Result<std::vector<Json>>> lists(ids.size(), std::vector<Json>());
  for (size_t i = 0; i < ids.size(); ++i) {
    lists[i] = types[i].status();
    if (!types[i].ok()) continue;
    ReadList({.type = *types[i],
              .ns = types[i]->namespaced ? ids[i].ns : "",
              .field_selector = "metadata.name=" + ids[i].name,
              .metadata_only = true},
             &lists[i]);
  }
  Wait();
  std::vector<Result<Json>> answers;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Result<std::vector<Json>>& list = lists[i];
    const Json* metadata = list.ok() && !list->empty() ? list->front().Find("metadata") : nullptr;
    if (metadata != nullptr) {
      answers.emplace_back(*metadata);
    } else {
      answers.emplace_back(list.ok() ? Error(Code::kNotFound, "{} is missing", ids[i].Text())
                                     : list.status());
    }
  }
  return answers;
}

Result<Json> ClusterClient::GetDocument(const std::string& path) {
  return Await<Json>([&](auto done) { return client_.GetDocument(path, std::move(done)); });
}

Status ClusterClient::WaitUntil(MonotonicTime end, const std::function<Result<bool>()>& is_done) {
  for (;;) {
    ASSIGN_OR_RETURN(const bool done, is_done());
    if (done) return Status::Ok();
    if (Now() + kWaitPollInterval > end) return Error(Code::kDeadlineExceeded, "timeout");
    Sleep(kWaitPollInterval);
  }
}

// --- Many at once

void ClusterClient::AddRequest(RequestStarter start) { waiting_.push_back(std::move(start)); }

// A list that is being read. The objects become the answer after the last page, because a list
// without its last pages must not look complete.
struct ClusterClient::PendingList {
  std::vector<Json> objects;
  Result<std::vector<Json>>* answer;
  ItemReducer reduce;
  std::function<void()> done;
};

void ClusterClient::ReadList(kube::ListQuery query, Result<std::vector<Json>>* answer,
                             ItemReducer reduce) {
  *answer = Status(Code::kDeadlineExceeded, "no answer in time");
  AddRequest([this, query = std::move(query), answer, reduce](std::function<void()> done) {
    ListPage(query,
             std::make_shared<PendingList>(PendingList{{}, answer, reduce, std::move(done)}));
    return kube::Operation();
  });
}

void ClusterClient::ListPage(kube::ListQuery query, const std::shared_ptr<PendingList>& list) {
  operations_.push_back(client_.List(query, [this, query,
                                             list](const Result<kube::ListPage>& page) {
    if (!page.ok()) {
      *list->answer = page.status();
      return list->done();
    }
    std::vector<Json>& objects = list->objects;
    for (const kube::RawObject& item : page->items) {
      if (item.json() == nullptr) continue;
      objects.push_back(list->reduce == nullptr ? *item.json() : list->reduce(*item.json()));
    }
    const bool is_last = page->continue_token.empty();
    if (objects.size() > max_objects_ || (objects.size() == max_objects_ && !is_last)) {
      *list->answer = Error(Code::kOutOfRange, "the list has more than {} objects", max_objects_);
      return list->done();
    }
    if (is_last) {
      *list->answer = std::move(objects);
      return list->done();
    }
    kube::ListQuery next = query;
    next.continue_token = page->continue_token;
    ListPage(std::move(next), list);
  }));
}

void ClusterClient::ReadObject(kube::ObjectRef object, Result<Json>* answer) {
  *answer = Status(Code::kDeadlineExceeded, "no answer in time");
  AddRequest([this, object = std::move(object), answer](std::function<void()> done) {
    return client_.Get(object, [answer, done = std::move(done)](Result<Json> json) {
      *answer = std::move(json);
      done();
    });
  });
}

void ClusterClient::ReadPage(const std::string& pod, std::string_view port, std::string_view path,
                             Result<std::string>* answer) {
  const kube::ObjectRef object = kube::Pod(std::string(names::kSystemNamespace), pod);
  ReadText(kube::PodPagePath(object, port, path), kube::kMaxPodPage, answer);
}

void ClusterClient::ReadText(std::string target, size_t max_bytes, Result<std::string>* answer) {
  *answer = Status(Code::kDeadlineExceeded, "no answer in time");
  AddRequest([this, target = std::move(target), max_bytes, answer](std::function<void()> done) {
    return kube::ReadText(client_, target, max_bytes, page_timeout_,
                          [answer, done = std::move(done)](Result<std::string> text) {
                            *answer = std::move(text);
                            done();
                          });
  });
}

void ClusterClient::StartNext() {
  while (!waiting_.empty() && active_ < kMaxParallelRequests) {
    const RequestStarter start = std::move(waiting_.front());
    waiting_.pop_front();
    ++active_;
    operations_.push_back(start([this, wait_number = wait_number_, weak = weak_.Get()] {
      // Posted, because the operation must not end inside its own callback.
      runner_.Post([this, wait_number, weak] {
        if (!weak || wait_number != wait_number_) return;  // this request's Wait has returned
        --active_;
        StartNext();
      });
    }));
  }
  if (active_ == 0) runner_.Quit();
}

void ClusterClient::Wait(Duration limit) {
  if (waiting_.empty()) return;
  const WeakPtrFactory<ClusterClient> waiting(this);  // its weak pointers are null after this call
  runner_.Post([this] { StartNext(); });
  runner_.PostDelayed(limit, [this, weak = waiting.Get()] {
    if (weak) runner_.Quit();
  });
  runner_.Run();
  waiting_.clear();
  operations_.clear();
  active_ = 0;
  ++wait_number_;
}

}  // namespace tessera::cli
