// SPDX-License-Identifier: Apache-2.0
#include "src/cli/status_reader.h"

#include <utility>

#include "api/names.h"
#include "src/kube/pod_page.h"

namespace tessera::cli {
namespace {

constexpr Duration kMetricsPatience = std::chrono::seconds(3);
constexpr std::string_view kSchedulerMetricsPort = "9411";

// What StatusOf reads of a node or pod; a node's image list alone is longer.
Json Reduced(const Json& object) {
  Json reduced = Json::MakeObject();
  for (const std::string_view part : {"metadata", "status", "spec"}) {
    const Json* value = object.Find(part);
    if (value == nullptr) continue;
    Json kept = Json::MakeObject();
    for (const std::string_view key : {"name", "labels", "conditions", "podIP",
                                       "initContainerStatuses", "containerStatuses", "nodeName"}) {
      if (const Json* member = value->Find(key)) kept.Set(key, *member);
    }
    reduced.Set(part, std::move(kept));
  }
  return reduced;
}

}  // namespace

void StatusReader::Read(Done done) {
  operations_.clear();
  objects_ = {};
  done_ = std::move(done);
  List(kube::kPods, &objects_.pods, "",
       [this] { List(kube::kNodes, &objects_.nodes, "", [this] { ReadObjects(); }); });
}

void StatusReader::List(const kube::ResourceType& type, std::vector<Json>* into,
                        std::string continue_token, std::function<void()> next) {
  const std::string ns = type.namespaced ? std::string(names::kSystemNamespace) : "";
  kube::ListQuery query{.type = type, .ns = ns, .continue_token = std::move(continue_token)};
  operations_.push_back(client_.List(
      query, [this, type, into, next = std::move(next)](const Result<kube::ListPage>& page) {
        if (!page.ok()) return Finish(page.status().Annotate(std::string(type.plural)));
        for (const kube::RawObject& item : page->items) {
          if (item.json() != nullptr) into->push_back(Reduced(*item.json()));
        }
        if (page->continue_token.empty()) return next();
        List(type, into, page->continue_token, next);
      }));
}

void StatusReader::ReadObjects() {
  const std::string ns(names::kSystemNamespace);
  const std::string agent(names::kAgent), scheduler(names::kScheduler), webhook(names::kWebhook);
  const std::pair<kube::ObjectRef, Result<Json>*> objects[] = {
      {{kube::kDaemonSets, agent, ns, ""}, &objects_.agent_daemonset},
      {{kube::kDeployments, scheduler, ns, ""}, &objects_.scheduler_deployment},
      {{kube::kEndpointSlices, scheduler, ns, ""}, &objects_.scheduler_endpoints},
      {{kube::kValidatingWebhooks, webhook, "", ""}, &objects_.webhook},
  };
  unread_ = std::size(objects);
  for (const auto& [object, into] : objects) {
    operations_.push_back(client_.Get(object, [this, into = into](Result<Json> answer) {
      *into = std::move(answer);
      if (--unread_ == 0) ReadMetrics();
    }));
  }
}

void StatusReader::ReadMetrics() {
  const std::string leader = LeaderOf(objects_);
  if (leader.empty()) {
    objects_.leader_metrics = Status(Code::kNotFound, "no replica of the scheduler leads");
    return Finish(Status::Ok());
  }
  operations_.push_back(kube::ReadPodPage(
      client_, kube::Pod(std::string(names::kSystemNamespace), leader), kSchedulerMetricsPort,
      "/metrics", kMetricsPatience, [this](Result<std::string> page) {
        objects_.leader_metrics = std::move(page);
        Finish(Status::Ok());
      }));
}

void StatusReader::Finish(Status status) {
  if (!done_) return;
  const Done done = std::exchange(done_, nullptr);
  if (!status.ok()) return done(std::move(status));
  done(std::move(objects_));
}

}  // namespace tessera::cli
