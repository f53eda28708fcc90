// SPDX-License-Identifier: Apache-2.0
#include "src/cli/agents.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "api/names.h"
#include "src/kube/api_error.h"
#include "src/kube/objects.h"

namespace tessera::cli {
namespace {

// More than 1,000 containers on 16 GPUs each.
constexpr size_t kMaxPage = 16 << 20;

bool ComesBefore(const GpuUse& a, const GpuUse& b) {
  return std::tie(a.ns, a.pod, a.container, a.node, a.gpu, a.uuid) <
         std::tie(b.ns, b.pod, b.container, b.node, b.gpu, b.uuid);
}

std::string ProxyPath(const std::string& pod) {
  return kube::PathOf({kube::kPods, pod, std::string(names::kSystemNamespace), ""}) + ":" +
         std::string(names::kAgentMetricsPort) + "/proxy" + std::string(names::kContainersPath);
}

}  // namespace

AgentReader::AgentReader(kube::Client& client, Duration patience)
    : client_(client), patience_(patience) {}
AgentReader::~AgentReader() = default;

void AgentReader::Read(std::string node, Done done) {
  asked_.clear();
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
  AskNext();
}

void AgentReader::AskNext() {
  while (!agents_.empty() && asked_.size() < kParallel) {
    const Agent agent = agents_.front();
    agents_.pop_front();
    Ask(agent);
  }
  if (!asked_.empty()) return;
  std::ranges::sort(uses_.uses, ComesBefore);
  Finish(std::move(uses_));
}

// As a stream, which is not retried: an agent that is away answers 503 through the API server, and
// that is no reason to think that the API server is away.
void AgentReader::Ask(const Agent& agent) {
  struct Page {
    int status = 0;
    std::string body;
  };
  const auto page = std::make_shared<Page>();
  net::StreamHandler handler;
  handler.on_head = [page](const net::Response& head) { page->status = head.status; };
  handler.on_data = [page](std::string_view piece) {
    if (page->body.size() <= kMaxPage) page->body += piece;
  };
  handler.on_end = [this, page, agent](const Status& status) {
    Answer(agent, page->status, status, page->body);
  };
  asked_[agent.pod] = client_.Stream(ProxyPath(agent.pod), kube::Encoding::kJson,
                                     {.connect = patience_, .header = patience_, .body = patience_},
                                     std::move(handler));
}

void AgentReader::Answer(const Agent& agent, int http_status, const Status& status,
                         const std::string& body) {
  Result<std::vector<GpuUse>> uses = std::vector<GpuUse>();
  if (!status.ok()) {
    uses = status;
  } else if (http_status != 200) {
    net::Response response;
    response.status = http_status;
    response.body = body;
    uses = kube::ErrorOf(response);
  } else {
    uses = DecodeUses(body);
  }
  if (uses.ok()) {
    uses_.uses.insert(uses_.uses.end(), uses->begin(), uses->end());
  } else {
    uses_.problems[agent.node] = uses.status().Annotate("agent " + agent.pod);
  }
  client_.runner().Post([this, pod = agent.pod, weak = weak_.Get()] {
    if (!weak || asked_.erase(pod) == 0) return;
    AskNext();
  });
}

void AgentReader::Finish(Result<ClusterUses> uses) {
  if (done_) std::exchange(done_, nullptr)(std::move(uses));
}

}  // namespace tessera::cli
