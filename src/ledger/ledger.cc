// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/ledger.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/model.h"
#include "src/device/pod_annotations.h"
#include "src/device/quantity.h"
#include "src/ledger/node_trial.h"

namespace tessera::ledger {
namespace {

using placement::Demand;
using placement::NodeId;
using placement::Pick;

// Drops the host name label if it equals the node's name, so that nodes of one type have equal
// labels.
kube::NodeTraits TraitsOf(const kube::NodeObject& node) {
  kube::NodeTraits traits{.labels = node.meta.labels, .taints = node.taints};
  const auto host = traits.labels.find(kube::kLabelHostname);
  if (host != traits.labels.end() && host->second == node.meta.name) traits.labels.erase(host);
  return traits;
}

int64_t GpuMemUnits(const kube::NodeObject& node) {
  const auto offered = node.allocatable.find(names::kResourceGpuMem);
  if (offered == node.allocatable.end()) return 0;
  return device::ParseWholeQuantity(offered->second).value_or(0);
}

uint8_t BitOf(device::Dialect dialect) { return 1U << static_cast<unsigned>(dialect); }

// Devices that are withdrawn, because other dialects hold their GPUs, stay in the capacity.
uint8_t OfferedDialects(const kube::NodeObject& node) {
  uint8_t offered = 0;
  for (const auto& [resource, amount] : node.capacity) {
    const std::optional<device::Dialect> dialect = device::DialectOfResource(resource);
    if (dialect && amount != "0") offered |= BitOf(*dialect);
  }
  return offered;
}

bool IsSame(const NodeEntry& a, const NodeEntry& b) {
  const auto tie = [](const NodeEntry& entry) {
    const device::Node& node = entry.node;
    return std::tie(entry.id, entry.unschedulable, entry.ready, entry.offered_dialects,
                    entry.problem, entry.uid, entry.gpu_mem_units, entry.model_label, node.name,
                    node.cpu, node.memory, node.inventory, node.pool, node.model);
  };
  return tie(a) == tie(b);
}

// The node's model label, or "" if it is a name of the model of all GPUs of the node. A quota
// accepts any name of a model, so such a label adds nothing.
std::string UnmatchedModelLabel(std::string label, const device::NodeInventory& inventory) {
  const bool known =
      std::all_of(inventory.gpus.begin(), inventory.gpus.end(),
                  [&](const device::Gpu& gpu) { return device::MatchesModel(gpu.model, label); });
  return known ? std::string() : std::move(label);
}

}  // namespace

Result<std::unique_ptr<ClusterLedger>> ClusterLedger::Make(LedgerOptions options,
                                                           const Clock* clock) {
  std::unique_ptr<ClusterLedger> ledger(new ClusterLedger(std::move(options), clock));
  ASSIGN_OR_RETURN(ledger->policy_,
                   placement::MakePolicy(ledger->options_.policy, *ledger->cluster_, {}));
  ledger->cpu_pods_.emplace(*ledger->cluster_, *ledger->policy_);
  return ledger;
}

ClusterLedger::ClusterLedger(LedgerOptions options, const Clock* clock)
    : options_(std::move(options)),
      clock_(clock),
      cluster_(std::make_unique<placement::Cluster>()),
      unfit_reasons_(*cluster_) {}
ClusterLedger::~ClusterLedger() = default;

placement::NodeSpec ClusterLedger::SpecOf(const NodeEntry& entry) {
  const device::NodeInventory& inventory = entry.node.inventory.without_uuids();
  auto uuid = entry.node.inventory.uuids().begin();
  // Cordoned nodes stay schedulable in the ledger, because some pods tolerate the taint;
  // kube-scheduler checks this.
  placement::NodeSpec spec{.name = entry.node.name,
                           .cpu_milli = entry.node.cpu.count(),
                           .memory = entry.node.memory,
                           .pool = entry.node.pool};
  bool linked = true;
  for (const device::Gpu& gpu : inventory.gpus) {
    const std::string gpu_uuid = (uuid++)->str();
    if (!gpu.mig) {
      spec.gpus.push_back(
          {.uuid = gpu_uuid, .model = gpu.model, .memory = gpu.memory, .healthy = gpu.health.ok()});
      continue;
    }
    linked = false;  // positions of slices differ from those in the inventory
    for (const device::MigSlice& slice : *gpu.mig) {
      spec.gpus.push_back({.uuid = (uuid++)->str(),
                           .model = gpu.model,
                           .memory = slice.memory,
                           .mig_profile = slice.profile,
                           .healthy = gpu.health.ok() && slice.health.ok(),
                           .parent_uuid = gpu_uuid});
    }
  }
  if (linked && spec.gpus.size() > 1)
    spec.groups = groups_.Get(placement::NodeLinks::Of(inventory));
  return spec;
}

bool ClusterLedger::SetNode(const kube::NodeObject& object) {
  if (const NodeEntry* former = FindNode(object.meta.name);
      former != nullptr && former->uid != object.meta.uid) {
    RemoveNode(object.meta.name);
  }
  NodeEntry entry{.unschedulable = object.unschedulable,
                  .ready = object.ready,
                  .offered_dialects = OfferedDialects(object),
                  .uid = object.meta.uid,
                  .gpu_mem_units = GpuMemUnits(object),
                  .internal_ip = object.internal_ip};
  const auto [known, added] = nodes_.try_emplace(object.meta.name);
  if (added) by_name_.Insert(known->first, &known->second);
  Result<device::Node> parsed = device::ParseNode({.name = object.meta.name,
                                                   .allocatable = object.allocatable,
                                                   .labels = object.meta.labels,
                                                   .annotations = object.meta.annotations},
                                                  options_.labels);
  entry.id = known->second.id;
  if (parsed.ok()) {
    entry.node = *std::move(parsed);
  } else {
    // Keep the last known GPUs, because pods hold them.
    entry.node = known->second.node;
    entry.node.name = object.meta.name;
    entry.problem = parsed.status().message();
  }
  entry.model_label = UnmatchedModelLabel(ValueAt(object.meta.labels, options_.labels.model),
                                          entry.node.inventory.without_uuids());
  // The kubelet writes the status every few minutes, mostly without a change.
  kube::NodeTraits traits = TraitsOf(object);
  const bool same_traits = *known->second.traits == traits;
  entry.traits = same_traits ? known->second.traits : traits_.Get(SharedValue(std::move(traits)));
  if (!added && IsSame(known->second, entry)) {
    known->second.traits = std::move(entry.traits);
    known->second.internal_ip = std::move(entry.internal_ip);
    return !same_traits;
  }
  entry.node.inventory.ShareIn(&inventories_);
  known->second = std::move(entry);
  UpdateCluster(known->second);
  return true;
}

const NodeEntry* ClusterLedger::FindNode(const Uid& uid) const {
  const auto found = std::ranges::find_if(
      nodes_, [&uid](const Nodes::value_type& node) { return node.second.uid == uid; });
  return found == nodes_.end() ? nullptr : &found->second;
}

device::MemoryUnit ClusterLedger::OfferedMemoryUnit() const {
  for (const auto& [name, node] : nodes_) {
    Bytes memory;
    for (const device::Gpu& gpu : node.node.inventory.without_uuids().gpus) memory += gpu.memory;
    if (node.gpu_mem_units == 0 || memory == Bytes(0)) continue;
    return node.gpu_mem_units > memory.count() >> 30 ? device::MemoryUnit::kMiB
                                                     : device::MemoryUnit::kGiB;
  }
  return device::MemoryUnit::kGiB;
}

void ClusterLedger::UpdateCluster(NodeEntry& entry) {
  if (entry.id == placement::kNoNode && entry.node.inventory.without_uuids().gpus.empty()) return;
  if (entry.id != placement::kNoNode) {
    const Status updated = cluster_->UpdateNode(entry.id, SpecOf(entry));
    if (!updated.ok()) entry.problem = updated.message();
  } else {
    const Result<NodeId> added = cluster_->AddNode(SpecOf(entry));
    if (!added.ok()) {
      entry.problem = added.status().message();
      return;
    }
    entry.id = *added;
    cpu_pods_->OnNodeAdded(entry.node.name, entry.id);
  }
  // Retries pods that waited for the node or for a GPU that has returned. Includes assumed pods,
  // because their binding may be in flight.
  for (const Uid& uid : PodsOn(entry.node.name)) {
    PodEntry& pod = pods_.find(uid)->second;
    if (!pod.request.devices->requests_devices()) continue;
    if (!pod.problem().empty()) TakeGpus(pod);
  }
}

void ClusterLedger::RemoveNode(std::string_view name) {
  const auto known = nodes_.find(name);
  if (known == nodes_.end()) return;
  for (const Uid& uid : PodsOn(known->first)) {
    PodEntry& pod = pods_.find(uid)->second;
    Release(pod);
    pod.SetProblem("its node was deleted");
  }
  if (known->second.id != placement::kNoNode) (void)cluster_->RemoveNode(known->second.id);
  cpu_pods_->OnNodeRemoved(known->first);
  by_name_.Erase(known->first);
  nodes_.erase(known);
}

Result<placement::PodDemand> ClusterLedger::DemandOf(const PodRequest& request) {
  return placement::DemandOf(*request.devices, request.cpu.count(), request.memory, *cluster_);
}

placement::Policy& ClusterLedger::PolicyFor(const PodRequest& request) {
  const auto named = [this](std::unique_ptr<placement::Policy>& policy, const char* name) {
    if (!policy) policy = placement::MakePolicy(name, *cluster_, {}).value();
    return policy.get();
  };
  if (!request.devices->policy) return *policy_;
  return *request.devices->policy == device::PackingPolicy::kBinpack
             ? *named(binpack_policy_, "NodeBinpackGpuBinpack")
             : *named(spread_policy_, "NodeSpreadGpuSpread");
}

Result<ClusterLedger::Query> ClusterLedger::MakeQuery(const kube::PodObject& pod) {
  ASSIGN_OR_RETURN(PodRequest request, PodRequestOf(pod, {options_.gpu_mem_unit}));
  return MakeQuery(std::move(request));
}

Result<ClusterLedger::Query> ClusterLedger::MakeQuery(PodRequest request) {
  Query query{.request = std::move(request)};
  DropAssumption(query.request.uid);
  RETURN_IF_ERROR(FillDemand(&query));
  return query;
}

Status ClusterLedger::FillDemand(Query* query) {
  ASSIGN_OR_RETURN(query->demand, DemandOf(query->request));
  ASSIGN_OR_RETURN(query->shape, cluster_->Intern(query->demand.demand));
  ASSIGN_OR_RETURN(query->gpus_only, cluster_->Intern(GpusOnly(query->demand.demand)));
  return {};
}

const Status& ClusterLedger::QuotaResult(Query& query, const NodeEntry& node,
                                         const std::string& model, Bytes gpu_memory) const {
  const auto [known, is_new] =
      query.quota_results.try_emplace({model, node.node.pool, gpu_memory.count()}, Status());
  if (is_new) {
    known->second = quota_.Check(placement::EstimatedCharge(
        query.request.ns, *cluster_, query.demand.demand, model, gpu_memory, node.node.pool));
  }
  return known->second;
}

// The GPUs are not picked yet, so the quota only needs to allow one of the node's models.
const Status& ClusterLedger::CheckQuota(Query& query, const NodeEntry& node) const {
  static const Status kAllowed;
  if (quota_.config().empty() || quota_.config().find(query.request.ns) == quota_.config().end()) {
    return kAllowed;
  }
  const Status* rejection = &kAllowed;
  const placement::GpuState* last = nullptr;
  for (const placement::GpuState& gpu : cluster_->node(node.id).gpus) {
    if (last != nullptr && last->model == gpu.model && last->total_bytes == gpu.total_bytes) {
      continue;
    }
    last = &gpu;
    const std::string model =
        node.model_label.empty() ? std::string(cluster_->NameOf(gpu.model)) : node.model_label;
    const Status& status = QuotaResult(query, node, model, Bytes(gpu.total_bytes));
    if (status.ok()) return status;
    rejection = &status;
  }
  return *rejection;
}

Verdict ClusterLedger::Evaluate(Query& query, const NodeEntry* known) {
  if (!query.requests_gpus()) return {.fits = true};
  if (known == nullptr) {
    return {.reason = "the node is not known yet", .kind = Verdict::kUnknownNode};
  }
  const NodeEntry& node = *known;
  if (node.id == placement::kNoNode || !node.problem.empty()) {
    return {.unresolvable = true,
            .reason = node.problem.empty() ? std::string_view("the node has no GPUs")
                                           : std::string_view(node.problem),
            .kind = node.problem.empty() ? Verdict::kNoKnownGpus : Verdict::kNodeProblem};
  }
  if (const UnfitReasons::Reason* shortfall = unfit_reasons_.ReasonFor(query.gpus_only, node.id)) {
    return {.unresolvable = shortfall->unresolvable,
            .reason = shortfall->text,
            .kind = shortfall->kind};
  }
  const Status& allowed = CheckQuota(query, node);
  if (!allowed.ok()) {
    return {.unresolvable = true, .reason = allowed.message(), .kind = Verdict::kQuota};
  }
  const std::string_view reserved = ReservedReason(query, node);
  if (!reserved.empty()) return {.reason = reserved, .kind = Verdict::kReserved};
  return {.fits = true};
}

std::optional<kube::Exclusion> ClusterLedger::WhyLeftOut(const PodRequest& pod,
                                                         const NodeEntry& node) {
  if (node.unschedulable && !pod.constraints->ToleratesCordon()) {
    return kube::Exclusion{"cordoned", "node is cordoned"};
  }
  if (!node.ready) return kube::Exclusion{"not-ready", "node is not ready"};
  for (const device::ContainerRequest& container : pod.devices->containers) {
    const bool offers = container.dialect == device::Dialect::kNone || node.offered_dialects == 0 ||
                        (node.offered_dialects & BitOf(container.dialect)) != 0;
    if (offers) continue;
    return kube::Exclusion{"not-offered",
                           fmt::format("node does not offer {}", NameOf(container.dialect))};
  }
  return kube::FindExclusion(*pod.constraints, node.node.name, *node.traits);
}

std::span<const float> ClusterLedger::Scores(const Query& query) {
  return PolicyFor(query.request).Scores(query.shape);
}

std::string ClusterLedger::Summary(const Query& query) const {
  return placement::CountShortfalls(*cluster_, cluster_->demand(query.gpus_only)).Text();
}

Result<placement::NodeReport> ClusterLedger::Report(const Query& query, std::string_view name) {
  const auto known = nodes_.find(name);
  if (known == nodes_.end() || known->second.id == placement::kNoNode) {
    return Error(Code::kNotFound, "node \"{}\" has no known GPUs", name);
  }
  placement::Policy& policy = PolicyFor(query.request);
  placement::NodeReport report =
      placement::ExplainNode(*cluster_, policy, query.shape, known->second.id);
  // kube-scheduler checks CPU and memory, so a shortage of them is not reported.
  if (!report.shortfall.ok() && (report.shortfall.reason == placement::UnfitReason::kCpu ||
                                 report.shortfall.reason == placement::UnfitReason::kMemory)) {
    return placement::ExplainNode(*cluster_, policy, query.gpus_only, known->second.id);
  }
  return report;
}

std::optional<Pick> ClusterLedger::FreePick(const Query& query, NodeId id) {
  placement::Policy& policy = PolicyFor(query.request);
  const std::optional<Pick> pick = policy.PickOn(query.shape, id);
  return pick ? pick : policy.PickOn(query.gpus_only, id);
}

std::map<std::string, NamespaceUse> ClusterLedger::QuotaUse() const {
  std::map<std::string, NamespaceUse> uses;
  for (const auto& [uid, pod] : pods_) {
    for (const placement::QuotaCharge& charge : *pod.charges) {
      uses[charge.namespace_name].used[charge.model] += charge.amount.count();
    }
  }
  for (const auto& [ns, quota] : quota_.config()) uses[ns].quota = quota;
  return uses;
}

std::vector<placement::QuotaCharge> ClusterLedger::ChargesOf(const PodRequest& request,
                                                             const NodeEntry& node,
                                                             const Demand& demand,
                                                             const Pick& pick) const {
  auto charges = placement::ChargesOf(request.ns, *cluster_, node.id, demand, pick);
  if (node.model_label.empty() || charges.empty()) return charges;
  MilliGpu sum{0};
  for (const placement::QuotaCharge& charge : charges) sum += charge.amount;
  charges.resize(1);
  charges[0].model = node.model_label;
  charges[0].amount = sum;
  return charges;
}

Result<ClusterLedger::Assumption> ClusterLedger::Assume(const Query& query, std::string_view name,
                                                        Duration hold) {
  const PodRequest& request = query.request;
  if (const auto at = pods_.find(request.uid);
      at != pods_.end() && at->second.binding_state == BindingState::kBound) {
    return Error(Code::kFailedPrecondition, "pod {} is already bound to node {}", request.Text(),
                 at->second.node);
  }
  DropAssumption(request.uid);
  const auto known = nodes_.find(name);
  if (known == nodes_.end()) return Error(Code::kNotFound, "unknown node \"{}\"", name);
  const NodeEntry& node = known->second;
  Assumption assumed;
  if (!query.requests_gpus()) return assumed;
  if (node.id == placement::kNoNode || !node.problem.empty()) {
    return Error(Code::kFailedPrecondition, "node {} has no usable GPUs{}{}", name,
                 node.problem.empty() ? "" : ": ", node.problem);
  }
  const std::optional<NodeTrial> reserved = WithReserved(request, node);
  const std::optional<Pick> pick =
      reserved ? reserved->PickFor(GpusOnly(query.demand.demand)) : FreePick(query, node.id);
  if (!pick && reserved) {
    return Error(Code::kFailedPrecondition,
                 "node {}: its GPUs are reserved for a pod that is nominated to the node", name);
  }
  if (!pick) {
    const Demand& demand = cluster_->demand(query.gpus_only);
    return Error(Code::kFailedPrecondition, "node {}: {}", name,
                 placement::TextOf(placement::ShortfallOf(cluster_->node(node.id), demand), demand,
                                   *cluster_));
  }
  assumed.assignment =
      placement::AssignmentOf(*request.devices, query.demand, *pick, *cluster_, node.id);
  ASSIGN_OR_RETURN(
      assumed.annotations,
      device::AnnotationsFor(*request.devices, assumed.assignment, node.node.inventory.Full(),
                             {.node = node.node.name,
                              .time_ns = clock_->WallNow().time_since_epoch().count(),
                              .gpu_mem_unit = options_.gpu_mem_unit}));
  auto charges = ChargesOf(request, node, query.demand.demand, *pick);
  RETURN_IF_ERROR(quota_.Charge(charges));
  // Adopt instead of Place: CPU and memory may be short, which only kube-scheduler checks.
  const Result<placement::PodId> place = cluster_->Adopt(query.shape, node.id, *pick);
  if (!place.ok()) {
    (void)quota_.Refund(charges);
    return place.status();
  }
  PodEntry& pod = pods_[request.uid];
  SetRequest(pod, request);
  pod.binding_state = BindingState::kAssumed;
  pod.SetAssignment(assumed.assignment);
  pod.annotations_dropped = false;
  pod.placed_id = *place;
  pod.charges = charges_.Get(SharedValue(std::move(charges)));
  pod.rare.Update([&](PodEntry::RareFields& rare) {
    rare.annotations = assumed.annotations;
    rare.problem.clear();
    rare.assumed_until = clock_->Now() + hold;
  });
  MoveTo(pod, node.node.name);
  ReportArrival(pod, query.shape);
  assumed_.insert(request.uid);
  return assumed;
}

}  // namespace tessera::ledger
