// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/ledger.h"

#include <algorithm>
#include <utility>

#include "src/device/model.h"
#include "src/device/pod_annotations.h"
#include "src/ledger/node_trial.h"

namespace tessera::ledger {
namespace {

using placement::Demand;
using placement::NodeId;
using placement::Pick;

std::string LabelOf(const kube::NodeObject& node, const std::string& key) {
  const auto found = node.meta.labels.find(key);
  return found == node.meta.labels.end() ? std::string() : found->second;
}

// What a label says of a node's GPUs, where it says more than they do: a quota may know them by any
// of their names, of which the label is only one.
std::string SaidModel(std::string label, const device::NodeInventory& inventory) {
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
  ledger->plain_pods_.emplace(*ledger->cluster_, *ledger->policy_);
  return ledger;
}

ClusterLedger::ClusterLedger(LedgerOptions options, const Clock* clock)
    : options_(std::move(options)),
      clock_(clock),
      cluster_(std::make_unique<placement::Cluster>()),
      lacks_(*cluster_) {}
ClusterLedger::~ClusterLedger() = default;

placement::NodeSpec ClusterLedger::SpecOf(const NodeEntry& entry) {
  const device::NodeInventory& inventory = *entry.node.inventory;
  // Whether a pod may go to a cordoned node is kube-scheduler's to judge: some tolerate it.
  placement::NodeSpec spec{.name = entry.node.name,
                           .cpu_milli = entry.node.cpu.count(),
                           .memory = entry.node.memory,
                           .pool = entry.node.pool};
  bool linked = true;
  for (const device::Gpu& gpu : inventory.gpus) {
    if (!gpu.mig) {
      spec.gpus.push_back(
          {.uuid = gpu.uuid, .model = gpu.model, .memory = gpu.memory, .healthy = gpu.health.ok()});
      continue;
    }
    linked = false;  // positions are no longer those of the inventory
    for (const device::MigSlice& slice : *gpu.mig) {
      spec.gpus.push_back({.uuid = slice.uuid,
                           .model = gpu.model,
                           .memory = slice.memory,
                           .mig_profile = slice.profile,
                           .healthy = gpu.health.ok() && slice.health.ok(),
                           .cut_from = gpu.uuid});
    }
  }
  if (linked && spec.gpus.size() > 1)
    spec.groups = groups_.Get(placement::NodeLinks::Of(inventory));
  return spec;
}

void ClusterLedger::SetNode(const kube::NodeObject& object) {
  NodeEntry entry{.unschedulable = object.unschedulable, .ready = object.ready};
  const auto [known, added] = nodes_.try_emplace(object.meta.name);
  if (added) by_name_.Insert(known->first, &known->second);
  const Result<device::Node> parsed = device::ParseNode({.name = object.meta.name,
                                                         .allocatable = object.allocatable,
                                                         .labels = object.meta.labels,
                                                         .annotations = object.meta.annotations},
                                                        options_.labels);
  entry.id = known->second.id;
  if (parsed.ok()) {
    entry.node = *parsed;
  } else {
    // What is known of its GPUs stays: pods are on them.
    entry.node = known->second.node;
    entry.node.name = object.meta.name;
    if (!entry.node.inventory) entry.node.inventory = std::make_shared<device::NodeInventory>();
    entry.problem = parsed.status().message();
  }
  entry.model_label = SaidModel(LabelOf(object, options_.labels.model), *entry.node.inventory);
  known->second = std::move(entry);
  Install(known->second);
}

void ClusterLedger::Install(NodeEntry& entry) {
  if (entry.id == placement::kNoNode && entry.node.inventory->gpus.empty()) return;
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
    plain_pods_->OnNodeAdded(entry.node.name, entry.id);
  }
  // Those that waited for the node, or for a GPU that has come back; also what is assumed, because
  // its binding may be on its way.
  for (const Uid& uid : PodsOn(entry.node.name)) {
    PodEntry& pod = pods_.find(uid)->second;
    if (!pod.ask.request.asks_for_devices()) continue;
    if (!pod.problem.empty()) Settle(pod);
  }
}

void ClusterLedger::RemoveNode(std::string_view name) {
  const auto known = nodes_.find(name);
  if (known == nodes_.end()) return;
  for (const Uid& uid : PodsOn(known->first)) {
    PodEntry& pod = pods_.find(uid)->second;
    Release(pod);
    pod.problem = "its node is gone";
  }
  if (known->second.id != placement::kNoNode) (void)cluster_->RemoveNode(known->second.id);
  plain_pods_->OnNodeRemoved(known->first);
  by_name_.Erase(known->first);
  nodes_.erase(known);
}

Result<placement::PodDemand> ClusterLedger::DemandOf(const PodAsk& ask) {
  return placement::DemandOf(ask.request, ask.cpu.count(), ask.memory, *cluster_);
}

placement::Policy& ClusterLedger::PolicyFor(const PodAsk& ask) {
  const auto named = [this](std::unique_ptr<placement::Policy>& policy, const char* name) {
    if (!policy) policy = placement::MakePolicy(name, *cluster_, {}).value();
    return policy.get();
  };
  if (!ask.request.policy) return *policy_;
  return *ask.request.policy == device::PackingPolicy::kBinpack
             ? *named(binpack_, "NodeBinpackGpuBinpack")
             : *named(spread_, "NodeSpreadGpuSpread");
}

Result<ClusterLedger::Question> ClusterLedger::Ask(const kube::PodObject& pod) {
  Question question;
  ASSIGN_OR_RETURN(question.ask, PodAskOf(pod, {options_.gpu_mem_unit}));
  Forget(pod.meta.uid);
  RETURN_IF_ERROR(FillDemand(&question));
  return question;
}

Status ClusterLedger::FillDemand(Question* question) {
  ASSIGN_OR_RETURN(question->demand, DemandOf(question->ask));
  ASSIGN_OR_RETURN(question->shape, cluster_->Intern(question->demand.demand));
  Demand gpus_only = question->demand.demand;
  gpus_only.cpu_milli = 0;
  gpus_only.memory = Bytes(0);
  ASSIGN_OR_RETURN(question->gpus_only, cluster_->Intern(gpus_only));
  return {};
}

const Status& ClusterLedger::Allowed(Question& question, const NodeEntry& node,
                                     const std::string& model, Bytes gpu_memory) const {
  const auto [known, is_new] =
      question.allowed.try_emplace({model, node.node.pool, gpu_memory.count()}, Status());
  if (is_new) {
    known->second = quota_.Check(placement::ChargeOf(
        question.ask.ns, *cluster_, question.demand.demand, model, gpu_memory, node.node.pool));
  }
  return known->second;
}

// Before GPUs are picked: allowed where one of the node's models is.
const Status& ClusterLedger::CheckQuota(Question& question, const NodeEntry& node) const {
  static const Status kAllowed;
  if (quota_.config().empty() || quota_.config().find(question.ask.ns) == quota_.config().end()) {
    return kAllowed;
  }
  const Status* refusal = &kAllowed;
  const placement::GpuSpec* last = nullptr;
  for (const placement::GpuSpec& gpu : cluster_->spec(node.id).gpus) {
    if (last != nullptr && last->model == gpu.model && last->memory == gpu.memory) continue;
    last = &gpu;
    const std::string& model = node.model_label.empty() ? gpu.model : node.model_label;
    const Status& status = Allowed(question, node, model, gpu.memory);
    if (status.ok()) return status;
    refusal = &status;
  }
  return *refusal;
}

Verdict ClusterLedger::Judge(Question& question, const NodeEntry* known) {
  if (!question.asks_for_gpus()) return {.fits = true};
  if (known == nullptr) {
    return {.reason = "the node is not known yet", .kind = Verdict::kUnknownNode};
  }
  const NodeEntry& node = *known;
  if (node.id == placement::kNoNode || !node.problem.empty()) {
    return {.unresolvable = true,
            .reason = node.problem.empty() ? std::string_view("the node has no GPUs")
                                           : std::string_view(node.problem),
            .kind = node.problem.empty() ? Verdict::kNoGpus : Verdict::kNodeProblem};
  }
  if (const Lacks::Reason* lack = lacks_.Of(question.gpus_only, node.id)) {
    return {.unresolvable = lack->unresolvable, .reason = lack->text, .kind = lack->kind};
  }
  const Status& allowed = CheckQuota(question, node);
  if (!allowed.ok()) {
    return {.unresolvable = true, .reason = allowed.message(), .kind = Verdict::kQuota};
  }
  const std::string_view reserved = ReservedReason(question, node);
  if (!reserved.empty()) return {.reason = reserved, .kind = Verdict::kReserved};
  return {.fits = true};
}

std::span<const float> ClusterLedger::Scores(const Question& question) {
  return PolicyFor(question.ask).Scores(question.shape);
}

std::string ClusterLedger::Summary(const Question& question) const {
  return placement::CountLacks(*cluster_, cluster_->demand(question.gpus_only)).Text();
}

Result<placement::NodeReport> ClusterLedger::Report(const Question& question,
                                                    std::string_view name) {
  const auto known = nodes_.find(name);
  if (known == nodes_.end() || known->second.id == placement::kNoNode) {
    return Error(Code::kNotFound, "node \"{}\" has no GPUs that are known", name);
  }
  placement::Policy& policy = PolicyFor(question.ask);
  placement::NodeReport report =
      placement::ExplainNode(*cluster_, policy, question.shape, known->second.id);
  // What kube-scheduler judges is not ours to refuse.
  if (!report.lack.ok() &&
      (report.lack.lack == placement::Lack::kCpu || report.lack.lack == placement::Lack::kMemory)) {
    return placement::ExplainNode(*cluster_, policy, question.gpus_only, known->second.id);
  }
  return report;
}

std::optional<Pick> ClusterLedger::FreePick(const Question& question, NodeId id) {
  placement::Policy& policy = PolicyFor(question.ask);
  const std::optional<Pick> pick = policy.PickOn(question.shape, id);
  return pick ? pick : policy.PickOn(question.gpus_only, id);
}

std::vector<placement::QuotaCharge> ClusterLedger::ChargesOf(const PodAsk& ask,
                                                             const NodeEntry& node,
                                                             const Demand& demand,
                                                             const Pick& pick) const {
  auto charges = placement::ChargesOf(ask.ns, *cluster_, node.id, demand, pick);
  if (node.model_label.empty() || charges.empty()) return charges;
  MilliGpu sum{0};
  for (const placement::QuotaCharge& charge : charges) sum += charge.amount;
  charges.resize(1);
  charges[0].model = node.model_label;
  charges[0].amount = sum;
  return charges;
}

Result<ClusterLedger::Assumed> ClusterLedger::Assume(const Question& question,
                                                     std::string_view name, Duration hold) {
  const PodAsk& ask = question.ask;
  if (const auto at = pods_.find(ask.uid);
      at != pods_.end() && at->second.standing == Standing::kBound) {
    return Error(Code::kFailedPrecondition, "pod {} is bound to node {} already", ask.Text(),
                 at->second.node);
  }
  Forget(ask.uid);
  const auto known = nodes_.find(name);
  if (known == nodes_.end()) return Error(Code::kNotFound, "there is no node \"{}\"", name);
  const NodeEntry& node = known->second;
  Assumed assumed;
  if (!question.asks_for_gpus()) return assumed;
  if (node.id == placement::kNoNode || !node.problem.empty()) {
    return Error(Code::kFailedPrecondition, "node {} has no GPUs that can be given out{}{}", name,
                 node.problem.empty() ? "" : ": ", node.problem);
  }
  const std::optional<NodeTrial> reserved = WithReserved(ask, node);
  const std::optional<Pick> pick =
      reserved ? reserved->PickFor(GpusOnly(question.demand.demand)) : FreePick(question, node.id);
  if (!pick && reserved) {
    return Error(Code::kFailedPrecondition,
                 "node {}: its GPUs are reserved for a pod that is nominated to it", name);
  }
  if (!pick) {
    const Demand& demand = cluster_->demand(question.gpus_only);
    return Error(
        Code::kFailedPrecondition, "node {}: {}", name,
        placement::TextOf(placement::WhyNot(cluster_->node(node.id), demand), demand, *cluster_));
  }
  const placement::NodeSpec& spec = cluster_->spec(node.id);
  assumed.assignment = placement::AssignmentOf(ask.request, question.demand, *pick, spec);
  ASSIGN_OR_RETURN(assumed.annotations,
                   device::AnnotationsFor(ask.request, assumed.assignment, *node.node.inventory,
                                          {.node = node.node.name,
                                           .time_ns = clock_->WallNow().time_since_epoch().count(),
                                           .gpu_mem_unit = options_.gpu_mem_unit}));
  auto charges = ChargesOf(ask, node, question.demand.demand, *pick);
  RETURN_IF_ERROR(quota_.Charge(charges));
  // The pick fits but for CPU and memory, which others judge.
  const Result<placement::PodId> place = cluster_->Adopt(question.shape, node.id, *pick);
  if (!place.ok()) {
    (void)quota_.Refund(charges);
    return place.status();
  }
  PodEntry& pod = pods_[ask.uid];
  pod.ask = ask;
  pod.standing = Standing::kAssumed;
  pod.assignment = assumed.assignment;
  pod.annotations = assumed.annotations;
  pod.problem.clear();
  pod.place = *place;
  pod.charges = std::move(charges);
  pod.assumed_until = clock_->Now() + hold;
  MoveTo(pod, node.node.name);
  Arrived(pod, question.shape);
  assumed_.insert(ask.uid);
  return assumed;
}

}  // namespace tessera::ledger
