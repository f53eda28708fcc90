// SPDX-License-Identifier: Apache-2.0
#include "src/operator/status_reporter.h"

#include <utility>

#include "api/names.h"
#include "src/base/log.h"

namespace tessera::operators {
namespace {

kube::KeptFields KeptFieldsOfAgentPods() {
  const auto none = [](std::string_view) { return false; };
  return {.label = none, .annotation = none, .resource = none};
}

}  // namespace

StatusReporter::StatusReporter(const ClusterAccess& access, const std::string& ns,
                               Reconciler& reconciler, Reconciler::Delegate& delegate)
    : access_(access),
      reconciler_(reconciler),
      delegate_(delegate),
      node_handler_(access.metrics, "nodes",
                    [this] {
                      health_.reset();
                      delegate_.OnReportChanged();
                    }),
      pod_handler_(access.metrics, "pods",
                   [this] {
                     health_.reset();
                     delegate_.OnReportChanged();
                     // The removal waits until the agents' pods have ended.
                     if (reconciler_.is_removing()) {
                       delegate_.OnReconcileDue(Duration::zero());
                     }
                   }),
      nodes_(access.client, kube::ListQuery{}, KeptFieldsOfNodes(), node_handler_),
      pods_(access.client,
            kube::ListQuery{.ns = ns, .label_selector = std::string(names::kAgentSelector)},
            KeptFieldsOfAgentPods(), pod_handler_) {}

bool StatusReporter::ready() const {
  const bool nodes_known = nodes_.synced() || !node_handler_.error.ok();
  const bool pods_known = pods_.synced() || !pod_handler_.error.ok();
  return nodes_known && pods_known && reconciler_.generation() != 0;
}

// Collects the health of thousands of nodes only after a node or an agent's pod has changed.
const NodeHealth& StatusReporter::Health() {
  const bool excludes_nvidia_nodes = !reconciler_.respected_policy().empty();
  if (health_ && health_excludes_nvidia_nodes_ == excludes_nvidia_nodes) return *health_;
  NodeHealthCollector collector(excludes_nvidia_nodes);
  pods_.ForEach([&](const AgentPodState& pod) { collector.AddPod(pod); });
  nodes_.ForEach([&](const GpuNodeState& node) { collector.AddNode(node); });
  health_ = collector.Take();
  health_excludes_nvidia_nodes_ = excludes_nvidia_nodes;
  return *health_;
}

StatusInput StatusReporter::Collect() {
  StatusInput input = reconciler_.Report();
  input.nodes = Health();
  if (input.drivers) AddDriverProblems(*input.drivers, &input.nodes);
  if (std::string error = WatchError(); !error.empty()) input.access_error = std::move(error);
  if (const Status error = reconciler_.removal_error(); !error.ok()) {
    input.access_error = error.message();
  }
  if (!reconciler_.respected_policy().empty()) {
    input.coexistence_text = fmt::format(
        "ClusterPolicy {} of NVIDIA's operator manages {} nodes, which get no agent: label a "
        "node {}=false to move it, or annotate this resource with {}=true to take all of them",
        reconciler_.respected_policy(), input.nodes.managed_by_nvidia,
        names::kLabelDeployDevicePlugin, names::kAnnotationAdoptNvidiaNodes);
  }
  return input;
}

std::string StatusReporter::WatchError() const {
  for (const auto& [name, error] :
       {std::pair<const char*, const Status&>{"nodes", node_handler_.error},
        {"the agents' pods", pod_handler_.error}}) {
    if (!error.ok()) return fmt::format("cannot watch {}: {}", name, error.message());
  }
  return "";
}

void StatusReporter::Write(const kube::JsonObject& resource, kube::KeyedQueue::Done done) {
  last_status_ = Collect();
  const Json* previous = resource.value.Find("status");
  Json status = StatusOf(*last_status_, previous, access_.client.runner().clock().WallNow());
  const std::string text = CanonicalText(status);
  const bool is_written =
      text == written_text_ && resource.meta.resource_version == version_before_write_;
  const bool is_current = previous != nullptr && CanonicalText(*previous) == text;
  if (is_current) OnPublished(*last_status_, {});
  if (is_written || is_current) return done(Status::Ok());
  std::vector<StatusChange> changes = ChangesBetween(previous, status);
  written_text_ = text;
  version_before_write_ = resource.meta.resource_version;
  Send(resource, std::move(status), *last_status_, std::move(changes), std::move(done));
}

void StatusReporter::Send(const kube::JsonObject& resource, Json status, const StatusInput& input,
                          std::vector<StatusChange> changes, kube::KeyedQueue::Done done) {
  // The UID makes the API server reject the status for a resource that was created again.
  const Json body = Json::MakeObject(
      {{"apiVersion", Json::String(names::kCustomResourceApiVersion)},
       {"kind", Json::String(names::kCustomResourceKind)},
       {"metadata", Json::MakeObject({{"name", Json::String(resource.meta.name)},
                                      {"uid", Json::String(resource.meta.uid.str())}})},
       {"status", std::move(status)}});
  const kube::PatchOptions apply{.field_manager = std::string(names::kOperator),
                                 .force = true,
                                 .before_send = access_.before_send};
  auto on_answer = [this, input, changes = std::move(changes),
                    done = std::move(done)](const Result<Json>& answer) {
    if (answer.status().code() == Code::kNotFound) return done(Status::Ok());
    if (!answer.ok()) {
      written_text_.clear();
      Log(Severity::kWarning, "cannot write the status, retrying",
          {{"error", answer.status().ToString()}});
      return done(answer.status());
    }
    access_.metrics.status_writes.Add();
    OnPublished(input, changes);
    done(Status::Ok());
  };
  write_ = access_.client.Apply(kube::kTesseras, body, apply, std::move(on_answer), "status");
}

void StatusReporter::OnPublished(const StatusInput& input,
                                 const std::vector<StatusChange>& changes) {
  reconciler_.OnPublished(input);
  for (const StatusChange& change : changes) {
    delegate_.OnEvent(change.warning ? kube::EventKind::kWarning : kube::EventKind::kNormal,
                      change.reason, change.message);
  }
}

}  // namespace tessera::operators
