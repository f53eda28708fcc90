// SPDX-License-Identifier: Apache-2.0
#include "src/operator/node_cleaner.h"

#include <deque>
#include <set>
#include <string>
#include <utility>

#include "api/names.h"

namespace tessera::operators {
namespace {

// Full nodes are tens of KiB each.
constexpr int kNodesOfAPage = 100;

const Json* ObjectIn(const Json* object, std::string_view key) {
  const Json* found = object == nullptr ? nullptr : object->Find(key);
  return found != nullptr && found->is_object() ? found : nullptr;
}

const Json* ArrayOf(const Json* object, std::string_view key) {
  const Json* found = object == nullptr ? nullptr : object->Find(key);
  return found != nullptr && found->is_array() ? found : nullptr;
}

// The labels ("f:labels") that an agent has written.
std::set<std::string> OfAgent(const Json& node, std::string_view map) {
  std::set<std::string> keys;
  const Json* managers = ArrayOf(ObjectIn(&node, "metadata"), "managedFields");
  if (managers == nullptr) return keys;
  for (const Json& entry : managers->items()) {
    if (entry.StringAt("manager").value_or("") != names::kAgent) continue;
    const Json* fields = ObjectIn(ObjectIn(ObjectIn(&entry, "fieldsV1"), "f:metadata"), map);
    if (fields == nullptr) continue;
    for (const auto& [field, unused] : fields->members()) {
      if (field.starts_with("f:")) keys.insert(field.substr(2));
    }
  }
  return keys;
}

}  // namespace

std::optional<Json> CleaningPatch(const Json& node) {
  const Json* metadata = ObjectIn(&node, "metadata");
  Json changes = Json::MakeObject();
  for (const std::string_view map : {"labels", "annotations"}) {
    const Json* entries = ObjectIn(metadata, map);
    if (entries == nullptr) continue;
    const std::set<std::string> ours = OfAgent(node, fmt::format("f:{}", map));
    Json removals = Json::MakeObject();
    for (const auto& [key, value] : entries->members()) {
      const bool own_name = map == "annotations" && key.starts_with(names::kAnnotationPrefix);
      if (own_name || ours.contains(key)) removals.Set(key, Json());
    }
    if (!removals.members().empty()) changes.Set(map, std::move(removals));
  }
  if (changes.members().empty()) return std::nullopt;
  return Json::MakeObject({{"metadata", std::move(changes)}});
}

std::optional<Json> StatusCleaningPatch(const Json& node) {
  const Json* status = ObjectIn(&node, "status");
  const Json* conditions = ArrayOf(status, "conditions");
  const Json* capacity = ObjectIn(status, "capacity");
  Json changes = Json::MakeObject();
  for (size_t i = 0; conditions != nullptr && i < conditions->items().size(); ++i) {
    const Json& one = conditions->items()[i];
    if (one.StringAt("type").value_or("") != names::kConditionGpuReady) continue;
    changes.Set(
        "conditions",
        Json::MakeArray({Json::MakeObject({{"$patch", Json::String("delete")},
                                           {"type", Json::String(names::kConditionGpuReady)}})}));
  }
  // The agent writes this count itself; the kubelet owns what device plugins register.
  if (capacity != nullptr && capacity->Find(names::kResourceGpuCount) != nullptr) {
    for (const char* map : {"capacity", "allocatable"}) {
      changes.Set(map, Json::MakeObject({{std::string(names::kResourceGpuCount), Json()}}));
    }
  }
  if (changes.members().empty()) return std::nullopt;
  return Json::MakeObject({{"status", std::move(changes)}});
}

struct NodeCleaner::Core : std::enable_shared_from_this<NodeCleaner::Core> {
  Core(kube::Client& c, kube::BeforeSend check, OnDone done)
      : client(c), before_send(std::move(check)), on_done(std::move(done)) {}

  struct Write {
    kube::ObjectRef node;
    kube::PatchKind kind;
    Json patch;
  };

  void ListNextPage() {
    operation = client.List(query, [this](const Result<kube::ListPage>& page) {
      if (!page.ok()) return Finish(page.status());
      for (const kube::RawObject& node : page->items) {
        if (node.json() != nullptr) Plan(*node.json());
      }
      query.continue_token = page->continue_token;
      WriteNext();
    });
  }

  void Plan(const Json& node) {
    const std::string name = node.Find("metadata")->StringAt("name").value_or("");
    auto metadata = CleaningPatch(node);
    auto status = StatusCleaningPatch(node);
    if (metadata) writes.push_back({kube::Node(name), kube::PatchKind::kMerge, *metadata});
    if (status) {
      writes.push_back({kube::NodeStatus(name), kube::PatchKind::kStrategicMerge, *status});
    }
    if (metadata || status) ++cleaned;
  }

  void WriteNext() {
    if (writes.empty()) {
      if (query.continue_token.empty()) return Finish(error);
      return ListNextPage();
    }
    const Write write = std::move(writes.front());
    writes.pop_front();
    operation =
        client.Patch(write.node, write.kind, write.patch,
                     {.field_manager = std::string(names::kOperator), .before_send = before_send},
                     [this, name = write.node.name](const Result<Json>& answer) {
                       const bool gone = answer.status().code() == Code::kNotFound;
                       if (!answer.ok() && !gone && error.ok())
                         error = answer.status().Annotate("node " + name);
                       WriteNext();
                     });
  }

  void Finish(const Status& status) {
    if (const auto done = std::exchange(on_done, nullptr)) done(status, cleaned);
  }

  kube::Client& client;
  const kube::BeforeSend before_send;
  OnDone on_done;
  kube::ListQuery query{.type = kube::kNodes, .limit = kNodesOfAPage};
  std::deque<Write> writes;
  size_t cleaned = 0;
  Status error;
  kube::Operation operation;
};

NodeCleaner::NodeCleaner(kube::Client& client, kube::BeforeSend before_send, OnDone on_done)
    : core_(std::make_shared<Core>(client, std::move(before_send), std::move(on_done))) {
  core_->ListNextPage();
}

NodeCleaner::~NodeCleaner() {
  core_->on_done = nullptr;
  core_->operation.Cancel();
}

}  // namespace tessera::operators
