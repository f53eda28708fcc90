// SPDX-License-Identifier: Apache-2.0
#include "src/operator/fleet_reader.h"

#include <algorithm>
#include <utility>

#include "api/names.h"

namespace tessera::operators {
namespace {

constexpr std::string_view kDriverPodSelector =
    "app.kubernetes.io/component=nvidia-driver,app.kubernetes.io/part-of=tessera";
constexpr std::string_view kGpuNodeSelector = "nvidia.com/gpu.present=true";

}  // namespace

FleetReader::FleetReader(kube::Client& client, OperatorMetrics& metrics, Options options,
                         Delegate& delegate)
    : client_(client), metrics_(metrics), options_(std::move(options)), delegate_(delegate) {}

FleetReader::~FleetReader() = default;

void FleetReader::Follow(LabelKeys selectors) {
  if (!following()) {
    const auto on_change = [this] { delegate_.OnFleetChanged(); };
    node_handler_.emplace(metrics_, "driver nodes", on_change);
    pod_handler_.emplace(metrics_, "driver pods", on_change);
    pods_ = std::make_unique<kube::Informer<DriverPodState>>(
        client_,
        kube::ListQuery{.ns = options_.ns, .label_selector = std::string(kDriverPodSelector)},
        KeptFieldsOfDriverPods(), *pod_handler_);
    ReadRevisions();
    leftovers_read_.Cancel();
    on_leftovers_known_ = nullptr;
    leftovers_error_ = Status::Ok();
  }
  if (nodes_ == nullptr || selectors != selectors_) FollowNodes(std::move(selectors));
}

void FleetReader::FollowNodes(LabelKeys selectors) {
  selectors_ = selectors;
  nodes_ = std::make_unique<kube::Informer<DriverNodeState>>(
      client_, kube::ListQuery{.label_selector = std::string(kGpuNodeSelector)},
      KeptFieldsOfDriverNodes(std::move(selectors)), *node_handler_);
}

void FleetReader::FindLeftovers(std::function<void(bool found)> on_known) {
  const bool is_checking = on_leftovers_known_ != nullptr;
  on_leftovers_known_ = std::move(on_known);
  if (!is_checking) ReadLeftovers();
}

void FleetReader::ReadLeftovers() {
  leftovers_read_ = client_.List({.type = kube::kNodes,
                                  .label_selector = std::string(names::kLabelDriverPool),
                                  .limit = 1,
                                  .metadata_only = true},
                                 [this](const Result<kube::ListPage>& page) { OnLeftovers(page); });
}

void FleetReader::OnLeftovers(const Result<kube::ListPage>& page) {
  const bool is_new = page.status().code() != leftovers_error_.code();
  leftovers_error_ = page.status();
  if (page.ok()) {
    const auto on_known = std::exchange(on_leftovers_known_, nullptr);
    on_known(!page->items.empty());
  } else {
    client_.runner().PostDelayed(options_.retry, [this, weak = weak_.Get()] {
      if (weak && on_leftovers_known_ != nullptr) ReadLeftovers();
    });
  }
  if (is_new) delegate_.OnErrorsChanged();
}

void FleetReader::ReadRevisions() {
  revisions_read_ = client_.Get({kube::kConfigMaps, std::string(kRevisionsName), options_.ns, ""},
                                [this](const Result<Json>& map) { OnRevisions(map); });
}

void FleetReader::OnRevisions(const Result<Json>& map) {
  const bool none = map.status().code() == Code::kNotFound;
  revisions_error_ = none ? Status::Ok() : map.status();
  if (!revisions_error_.ok()) {
    client_.runner().PostDelayed(options_.retry, [this, weak = weak_.Get()] {
      if (weak) ReadRevisions();
    });
    return delegate_.OnErrorsChanged();
  }
  const Json* data = map.ok() ? map->Find("data") : nullptr;
  if (data != nullptr) {
    for (const auto& [revision, text] : data->members()) {
      if (text.is_string()) revisions_.emplace(revision, text.string_value());
    }
  }
  revisions_known_ = true;
  delegate_.OnFleetChanged();
}

bool FleetReader::known() const {
  return revisions_known_ && nodes_ != nullptr && nodes_->synced() && pods_->synced();
}

driver::FleetView FleetReader::View(const std::vector<driver::FleetPool>& pools) const {
  std::vector<driver::FleetNode> nodes;
  nodes_->ForEach([&](const DriverNodeState& state) { nodes.push_back(state.node); });
  // Sorted, so that equal clusters give equal reports.
  std::ranges::sort(nodes, {}, &driver::FleetNode::name);
  std::vector<driver::FleetPod> drivers;
  pods_->ForEach([&](const DriverPodState& state) { drivers.push_back(state.pod); });
  return driver::ViewFleet(pools, nodes, drivers, revisions_);
}

const DriverNodeState* FleetReader::FindNode(const std::string& name) const {
  return nodes_ == nullptr ? nullptr : nodes_->Find(name);
}

std::string FleetReader::ResourceVersionOf(const std::string& node) const {
  const DriverNodeState* state = FindNode(node);
  return state == nullptr ? "" : state->meta.resource_version;
}

const DriverPodState* FleetReader::FindDriverPod(const std::string& key) const {
  return pods_ == nullptr ? nullptr : pods_->Find(key);
}

void FleetReader::ReadPods(std::deque<PodsToRead> nodes,
                           std::function<void(const Status& error)> on_done) {
  node_pods_.clear();
  pods_read_error_ = Status::Ok();
  to_read_ = std::move(nodes);
  on_pods_read_ = std::move(on_done);
  ReadNextPods();
}

void FleetReader::ReadNextPods() {
  if (to_read_.empty()) {
    const bool is_new = pods_read_error_.code() != pods_error_.code();
    pods_error_ = pods_read_error_;
    if (is_new) delegate_.OnErrorsChanged();
    const auto on_done = std::exchange(on_pods_read_, nullptr);
    return on_done(pods_error_);
  }
  const PodsToRead next = std::move(to_read_.front());
  to_read_.pop_front();
  if (node_pods_.contains(next.node)) return ReadNextPods();
  ReadPageOfPods(next, "");
}

// A node may have more pods than one page, because pods that have ended count, too.
void FleetReader::ReadPageOfPods(const PodsToRead& node, const std::string& continue_token) {
  pods_read_ =
      client_.List({.type = kube::kPods,
                    .field_selector = "spec.nodeName=" + node.node,
                    .continue_token = continue_token},
                   [this, node](const Result<kube::ListPage>& page) { OnPageOfPods(node, page); });
}

void FleetReader::OnPageOfPods(const PodsToRead& node, const Result<kube::ListPage>& page) {
  if (!page.ok()) {
    if (pods_read_error_.ok()) pods_read_error_ = page.status();
    node_pods_.erase(node.node);
    return ReadNextPods();
  }
  std::vector<driver::UpgradePod>& found = node_pods_[node.node];
  for (const kube::RawObject& pod : page->items) {
    if (pod.json() != nullptr) found.push_back(UpgradePodOf(*pod.json(), node.wait_for));
  }
  if (!page->continue_token.empty()) return ReadPageOfPods(node, page->continue_token);
  ReadNextPods();
}

const std::vector<driver::UpgradePod>* FleetReader::PodsOf(const std::string& node) const {
  const auto found = node_pods_.find(node);
  return found == node_pods_.end() ? nullptr : &found->second;
}

std::vector<std::pair<std::string_view, Status>> FleetReader::Errors() const {
  std::vector<std::pair<std::string_view, Status>> errors = {
      {"look for drivers of earlier settings on nodes", leftovers_error_}};
  if (following()) {
    errors.emplace_back("watch nodes", node_handler_->error);
    errors.emplace_back("watch driver pods", pod_handler_->error);
    errors.emplace_back("read ConfigMap tessera-driver-revisions", revisions_error_);
    errors.emplace_back("read pods of nodes to upgrade", pods_error_);
  }
  std::erase_if(errors, [](const auto& error) { return error.second.ok(); });
  return errors;
}

}  // namespace tessera::operators
