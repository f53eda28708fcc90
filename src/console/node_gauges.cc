// SPDX-License-Identifier: Apache-2.0
#include "src/console/node_gauges.h"

#include <iterator>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/console/node_usage.h"
#include "src/formats/json.h"
#include "src/kube/pod_page.h"

namespace tessera::console {
namespace {

constexpr const char* kMetricsPage = "/metrics";

}  // namespace

std::string GaugesForNodeMap(std::string_view metrics) {
  const Json gpus = JsonOfGpuGauges(metrics);
  Json values = Json::MakeObject();
  for (const auto& [uuid, gauges] : gpus.members()) {
    Json pair = Json::MakeArray();
    for (const char* field : {"utilization", "temperature"}) {
      const Json* gauge = gauges.Find(field);
      pair.Append(gauge == nullptr ? Json() : *gauge);
    }
    values.Set(uuid, std::move(pair));
  }
  return values.Serialize();
}

std::string NodeGauges::Read(const std::vector<std::string>& nodes) {
  const MonotonicTime now = Now();
  std::string text = "{";
  for (const std::string& node : nodes) {
    Gauges& gauges = nodes_[node];
    gauges.requested_at = now;
    if (!gauges.queued &&
        (!gauges.last_read_ended_at || now - *gauges.last_read_ended_at > kMaxAge)) {
      gauges.queued = true;
      queue_.push_back(node);
    }
    if (!gauges.last_read_ended_at) continue;
    if (text.size() > 1) text.push_back(',');
    AppendJsonString(node, &text);
    text += ":{";
    if (!gauges.gpus.empty()) {
      fmt::format_to(std::back_inserter(text), "\"age\":{:.1f},\"gpus\":{}",
                     std::chrono::duration<double>(now - gauges.read_at).count(), gauges.gpus);
    }
    if (!gauges.error.empty()) {
      text += gauges.gpus.empty() ? "\"error\":" : ",\"error\":";
      AppendJsonString(gauges.error, &text);
    }
    text.push_back('}');
  }
  text.push_back('}');
  ScheduleNextRead();
  return text;
}

void NodeGauges::ScheduleNextRead() {
  if (next_read_scheduled_ || queue_.empty()) return;
  next_read_scheduled_ = true;
  client_.runner().PostDelayed(kReadInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    next_read_scheduled_ = false;
    StartNextRead();
    ScheduleNextRead();
  });
}

void NodeGauges::StartNextRead() {
  if (reads_.size() >= kMaxParallelReads) return;
  const MonotonicTime now = Now();
  std::erase_if(nodes_, [&](const auto& entry) {
    return !entry.second.queued && now - entry.second.requested_at > kForgetAfter;
  });
  while (!queue_.empty()) {
    const std::string node = std::move(queue_.front());
    queue_.pop_front();
    Gauges& gauges = nodes_.at(node);
    if (now - gauges.requested_at <= kMaxAge) return StartRead(node);
    gauges.queued = false;  // the page no longer shows the node
  }
}

void NodeGauges::StartRead(const std::string& node) {
  const RequestNumber number = ++last_number_;
  AgentRead& read = reads_[number];
  const std::string& agent_pod = nodes_.at(node).pod;
  if (!agent_pod.empty()) {
    read.page =
        kube::ReadPodPage(client_, kube::Pod(std::string(names::kSystemNamespace), agent_pod),
                          names::kAgentMetricsPort, kMetricsPage, kReadTimeout,
                          [this, number, node, pod = agent_pod](const Result<std::string>& page) {
                            TakePage(node, pod, page);
                            EndRead(number, node);
                          });
    return;
  }
  read.pages = std::make_unique<kube::AgentPages>(client_, kReadTimeout);
  read.pages->Read(
      node, {kMetricsPage},
      [this, node](const kube::AgentPages::AgentPod& agent, std::string_view,
                   const Result<std::string>& page) { TakePage(node, agent.pod, page); },
      [this, number, node](const Status& status) {
        if (!status.ok()) TakePage(node, "", status);
        EndRead(number, node);
      });
}

void NodeGauges::TakePage(const std::string& node, const std::string& pod,
                          const Result<std::string>& page) {
  Gauges& gauges = nodes_.at(node);
  gauges.error = page.status().message();
  gauges.pod = page.ok() ? pod : "";  // the agent may have a new pod
  if (!page.ok()) return;
  gauges.gpus = GaugesForNodeMap(*page);
  gauges.read_at = Now();
}

void NodeGauges::EndRead(RequestNumber number, const std::string& node) {
  Gauges& gauges = nodes_.at(node);
  gauges.last_read_ended_at = Now();
  gauges.queued = false;
  // A read must not be destroyed inside its callback.
  client_.runner().Post([this, number, weak = weak_.Get()] {
    if (weak) reads_.erase(number);
  });
}

}  // namespace tessera::console
