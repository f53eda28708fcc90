// SPDX-License-Identifier: Apache-2.0
#include "src/cli/agents.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "api/names.h"
#include "src/kube/objects.h"
#include "src/kube/pod_page.h"

namespace tessera::cli {
namespace {

bool ComesBefore(const ContainerUse& a, const ContainerUse& b) {
  return std::tie(a.ns, a.pod, a.container, a.node, a.gpu, a.uuid) <
         std::tie(b.ns, b.pod, b.container, b.node, b.gpu, b.uuid);
}

}  // namespace

AgentReader::AgentReader(kube::Client& client, Duration patience)
    : client_(client), patience_(patience) {}
AgentReader::~AgentReader() = default;

void AgentReader::Read(std::string node, Done done) {
  requests_.clear();
  agents_.clear();
  uses_ = {};
  node_ = std::move(node);
  done_ = std::move(done);
  List("");
}

void AgentReader::List(std::string continue_token) {
  kube::ListQuery query{.type = kube::kPods,
                        .ns = std::string(names::kSystemNamespace),
                        .label_selector = std::string(names::kAgentSelector),
                        .continue_token = std::move(continue_token)};
  if (!node_.empty()) query.field_selector = "spec.nodeName=" + node_;
  listing_ = client_.List(query, [this](const Result<kube::ListPage>& page) { TakePage(page); });
}

void AgentReader::TakePage(const Result<kube::ListPage>& page) {
  if (!page.ok()) return Finish(page.status().Annotate("cannot list the agents"));
  for (const kube::RawObject& raw : page->items) {
    kube::PodObject pod;
    if (!kube::DecodeObject(raw, {}, &pod).ok() || pod.node_name.empty()) continue;
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

void AgentReader::RequestNext() {
  while (!agents_.empty() && requests_.size() < kParallel) {
    const Agent agent = agents_.front();
    agents_.pop_front();
    RequestUsage(agent);
  }
  if (!requests_.empty()) return;
  std::ranges::sort(uses_.uses, ComesBefore);
  Finish(std::move(uses_));
}

void AgentReader::RequestUsage(const Agent& agent) {
  requests_[agent.pod] =
      kube::ReadPodPage(client_, kube::Pod(std::string(names::kSystemNamespace), agent.pod),
                        names::kAgentMetricsPort, names::kContainersPath, patience_,
                        [this, agent](const Result<std::string>& page) { OnPage(agent, page); });
}

void AgentReader::OnPage(const Agent& agent, const Result<std::string>& page) {
  const Result<UsagePage> usage = page.ok() ? DecodeUses(*page) : Result<UsagePage>(page.status());
  Status problem = usage.status();
  if (usage.ok()) uses_.uses.insert(uses_.uses.end(), usage->uses.begin(), usage->uses.end());
  if (usage.ok() && !usage->complete) {
    problem = Status(Code::kUnavailable,
                     "has just started; rows are missing until it has found "
                     "all containers, a second or two");
  }
  if (!problem.ok()) uses_.problems[agent.node] = problem.Annotate("agent " + agent.pod);
  client_.runner().Post([this, pod = agent.pod, weak = weak_.Get()] {
    if (!weak || requests_.erase(pod) == 0) return;
    RequestNext();
  });
}

void AgentReader::Finish(Result<ClusterUses> uses) {
  if (done_) std::exchange(done_, nullptr)(std::move(uses));
}

}  // namespace tessera::cli
