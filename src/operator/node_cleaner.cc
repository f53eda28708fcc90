// SPDX-License-Identifier: Apache-2.0
#include "src/operator/node_cleaner.h"

#include <deque>
#include <string>
#include <utility>

#include "api/names.h"
#include "src/components/agent_written_fields.h"

namespace tessera::operators {
namespace {

// Full nodes are tens of KiB each.
constexpr int kCleanerPageSize = 100;

}  // namespace

struct NodeCleaner::Core {
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
    const Json* object = node.Find("metadata");
    const std::string name = object == nullptr ? "" : object->StringAt("name").value_or("");
    const components::AgentWrittenFields fields = components::AgentWrittenFieldsOf(node);
    auto metadata = components::NodeCleanupPatch(fields);
    auto status = components::NodeStatusCleanupPatch(fields);
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
  kube::ListQuery query{.type = kube::kNodes, .limit = kCleanerPageSize};
  std::deque<Write> writes;
  size_t cleaned = 0;
  Status error;
  kube::Operation operation;
};

NodeCleaner::NodeCleaner(kube::Client& client, kube::BeforeSend before_send, OnDone on_done)
    : core_(std::make_unique<Core>(client, std::move(before_send), std::move(on_done))) {
  core_->ListNextPage();
}

NodeCleaner::~NodeCleaner() {
  core_->on_done = nullptr;
  core_->operation.Cancel();
}

}  // namespace tessera::operators
