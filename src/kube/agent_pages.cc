// SPDX-License-Identifier: Apache-2.0
#include "src/kube/agent_pages.h"

#include <utility>

#include "api/names.h"
#include "src/kube/objects.h"
#include "src/kube/pod_page.h"

namespace tessera::kube {

AgentPages::AgentPages(Client& client, Duration page_timeout)
    : client_(client), page_timeout_(page_timeout) {}

void AgentPages::Read(std::string node, std::vector<std::string> paths, OnPage on_page,
                      OnDone on_done) {
  requests_.clear();
  agents_.clear();
  node_ = std::move(node);
  paths_ = std::move(paths);
  on_page_ = std::move(on_page);
  on_done_ = std::move(on_done);
  List("");
}

void AgentPages::List(std::string continue_token) {
  ListQuery query{.type = kPods,
                  .ns = std::string(names::kSystemNamespace),
                  .label_selector = std::string(names::kAgentSelector),
                  .continue_token = std::move(continue_token)};
  if (!node_.empty()) query.field_selector = "spec.nodeName=" + node_;
  listing_ = client_.List(query, [this](const Result<ListPage>& page) { OnList(page); });
}

void AgentPages::OnList(const Result<ListPage>& page) {
  if (!page.ok()) return Finish(page.status().Annotate("cannot list the agents"));
  for (const RawObject& raw : page->items) {
    PodObject pod;
    if (!DecodeObject(raw, {}, &pod).ok() || pod.node_name.empty() || pod.meta.deleting) continue;
    agents_.push_back({pod.meta.name, pod.node_name});
  }
  if (!page->continue_token.empty()) return List(page->continue_token);
  if (agents_.empty()) {
    return Finish(Error(Code::kNotFound, "no tessera-agent runs {}: see \"kubectl -n {} get pods\"",
                        node_.empty() ? "in this cluster" : "on node " + node_,
                        names::kSystemNamespace));
  }
  RequestNext();
}

void AgentPages::RequestNext() {
  while (!agents_.empty() && requests_.size() < kMaxConcurrentAgents) {
    const AgentPod agent = agents_.front();
    agents_.pop_front();
    Request(agent);
  }
  if (requests_.empty()) Finish(Status::Ok());
}

void AgentPages::Request(const AgentPod& agent) {
  PodReads& pending = requests_[agent.pod];
  pending.unread = paths_.size();
  for (const std::string& path : paths_) {
    pending.pages.push_back(ReadPodPage(
        client_, Pod(std::string(names::kSystemNamespace), agent.pod), names::kAgentMetricsPort,
        path, page_timeout_, [this, agent, path](const Result<std::string>& page) {
          on_page_(agent, path, page);
          if (--requests_.at(agent.pod).unread > 0) return;
          // An operation must not be destroyed inside its callback.
          client_.runner().Post([this, pod = agent.pod, weak = weak_.Get()] {
            if (weak && requests_.erase(pod) > 0) RequestNext();
          });
        }));
  }
}

void AgentPages::Finish(const Status& status) {
  if (on_done_) std::exchange(on_done_, nullptr)(status);
}

}  // namespace tessera::kube
