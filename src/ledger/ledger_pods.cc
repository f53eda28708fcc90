// SPDX-License-Identifier: Apache-2.0
// How single pods enter, move through and leave the account.
#include <algorithm>
#include <bit>
#include <utility>

#include "src/device/pod_annotations.h"
#include "src/ledger/ledger.h"
#include "src/ledger/node_trial.h"

namespace tessera::ledger {
namespace {

using placement::Demand;
using placement::NodeId;
using placement::Pick;

// The GPUs that `assignment` names for one ask of `count`, by their positions: those of all of its
// containers, because the agent keeps an init container's GPUs for as long as its pod lives. An
// annotation that gives an init container GPUs beside those that last counts without it.
Result<uint64_t> MaskOf(const device::Assignment& assignment, const device::Request& request,
                        const std::vector<size_t>& containers, int count,
                        const placement::NodeSpec& spec) {
  uint64_t lasting = 0, init = 0;
  for (const size_t i : containers) {
    const device::ContainerRequest& container = request.containers[i];
    const auto shares = assignment.containers.find(container.name);
    if (shares == assignment.containers.end()) continue;
    for (const device::DeviceShare& share : shares->second) {
      const auto same = [&](const placement::GpuSpec& gpu) { return gpu.uuid == share.uuid; };
      const auto gpu = std::find_if(spec.gpus.begin(), spec.gpus.end(), same);
      if (gpu == spec.gpus.end()) {
        return Error(Code::kNotFound, "container \"{}\" has GPU {}, which node {} has not",
                     container.name, share.uuid, spec.name);
      }
      (container.phase == device::Phase::kInit ? init : lasting) |= uint64_t{1}
                                                                    << (gpu - spec.gpus.begin());
    }
  }
  if (lasting == 0) return init;
  return std::popcount(lasting) < count ? lasting | init : lasting;
}

}  // namespace

std::vector<std::pair<std::string_view, device::Share>> SharesOf(const PodEntry& pod) {
  std::vector<std::pair<std::string_view, device::Share>> shares;
  const auto share_of = [&](std::string_view uuid) -> device::Share& {
    for (auto& [known, share] : shares) {
      if (known == uuid) return share;
    }
    return shares.emplace_back(uuid, device::Share()).second;
  };
  const auto add = [&](bool init) {
    for (const device::ContainerRequest& container : pod.ask.request.containers) {
      const auto has = pod.assignment.containers.find(container.name);
      if (has == pod.assignment.containers.end()) continue;
      if ((container.phase == device::Phase::kInit) != init) continue;
      for (const device::DeviceShare& one : has->second) {
        device::Share& sum = share_of(one.uuid);
        sum.compute = init ? std::max(sum.compute, one.compute) : sum.compute + one.compute;
        sum.memory = init ? std::max(sum.memory, one.memory) : sum.memory + one.memory;
      }
    }
  };
  add(false);
  add(true);
  for (auto& [uuid, share] : shares) share.compute = std::min(share.compute, kWholeGpu);
  return shares;
}

const std::set<Uid>& ClusterLedger::PodsOn(const std::string& node) const {
  static const std::set<Uid> kNone;
  const auto found = pods_of_.find(node);
  return found == pods_of_.end() ? kNone : found->second;
}

void ClusterLedger::MoveTo(PodEntry& pod, const std::string& node) {
  if (pod.node == node) return;
  if (!pod.node.empty()) {
    const auto old = pods_of_.find(pod.node);
    old->second.erase(pod.ask.uid);
    if (old->second.empty()) pods_of_.erase(old);
  }
  pod.node = node;
  if (!node.empty()) pods_of_[node].insert(pod.ask.uid);
}

void ClusterLedger::Arrived(PodEntry& pod, placement::ShapeId shape) {
  if (!std::exchange(pod.arrived, true)) policy_->Arrived(shape);
}

void ClusterLedger::Release(PodEntry& pod) {
  if (pod.place) (void)cluster_->Remove(*pod.place);
  if (!pod.charges.empty()) (void)quota_.Refund(pod.charges);
  pod.place.reset();
  pod.charges.clear();
  pod.assignment = {};
  pod.guessed_asks.reset();
}

void ClusterLedger::Leave(PodEntry& pod) {
  if (pod.place && pod.arrived) {
    if (const placement::Pod* placed = cluster_->Find(*pod.place)) policy_->Departed(placed->shape);
  }
  Release(pod);
  MoveTo(pod, "");
  assumed_.erase(pod.ask.uid);
}

void ClusterLedger::RemovePod(const Uid& uid) {
  RemovePlainPod(kube::UidDigest::Of(uid));
  const auto known = pods_.find(uid);
  if (known == pods_.end()) return;
  Nominate(known->second, "");
  Leave(known->second);
  pods_.erase(known);
}

void ClusterLedger::SetPod(const kube::PodObject& object) {
  if (object.ended()) return RemovePod(object.meta.uid);
  Result<PodAsk> ask = PodAskOf(object, {options_.gpu_mem_unit});
  if (!ask.ok()) return SetUnreadable(object, ask.status());
  if (!ask->request.asks_for_devices()) return SetPlain(object, *ask);
  PodEntry& pod = pods_[object.meta.uid];
  pod.seen = true;
  pod.deleting = object.meta.deleting;
  pod.controlled = object.meta.controlled;
  pod.created = object.meta.created;
  if (!object.node_name.empty()) {
    pod.bound_at = object.scheduled == WallTime{} ? object.meta.created : object.scheduled;
  }
  pod.labels = object.meta.labels;
  if (object.node_name.empty()) {
    pod.ask.uid = object.meta.uid;
    Nominate(pod, object.meta.deleting ? "" : object.nominated_node);
    // The API server need not have seen the binding yet.
    if (pod.standing == Standing::kAssumed) return;
    pod.ask = *std::move(ask);
    pod.standing = Standing::kWaiting;
    if (pod.arrived) return;
    const Result<placement::PodDemand> demand = DemandOf(pod.ask);
    if (!demand.ok()) {
      pod.problem = demand.status().message();
      return;
    }
    const Result<placement::ShapeId> shape = cluster_->Intern(demand->demand);
    if (shape.ok()) Arrived(pod, *shape);
    return;
  }
  Nominate(pod, "");
  const bool settled = pod.standing == Standing::kBound && pod.node == object.node_name &&
                       pod.ask == *ask && pod.annotations == object.meta.annotations;
  if (settled) return;
  pod.annotations = object.meta.annotations;
  // As it was assumed: nothing moves.
  const bool as_assumed = pod.standing == Standing::kAssumed && pod.node == object.node_name &&
                          pod.ask.request == ask->request && AssignmentIs(pod);
  assumed_.erase(object.meta.uid);
  pod.standing = Standing::kBound;
  pod.ask = *std::move(ask);
  MoveTo(pod, object.node_name);
  if (!as_assumed) Settle(pod);
}

// The kubelet will not start what it cannot read either: the pod holds nothing.
void ClusterLedger::SetUnreadable(const kube::PodObject& object, const Status& why) {
  RemovePod(object.meta.uid);
  PodEntry& pod = pods_[object.meta.uid];
  pod.ask = {.uid = object.meta.uid, .ns = object.meta.ns, .name = object.meta.name};
  pod.seen = true;
  pod.created = object.meta.created;
  pod.deleting = object.meta.deleting;
  pod.problem = why.message();
  pod.standing = object.node_name.empty() ? Standing::kWaiting : Standing::kBound;
  MoveTo(pod, object.node_name);
}

void ClusterLedger::SetPlain(const kube::PodObject& object, const PodAsk& ask) {
  if (pods_.contains(ask.uid)) RemovePod(ask.uid);  // it could not be read before
  if (object.node_name.empty()) return;             // it takes nothing yet
  const NodeEntry* node = FindNode(object.node_name);
  const NodeId id = node == nullptr ? placement::kNoNode : node->id;
  const Status counted = plain_pods_->Set(kube::UidDigest::Of(ask.uid), object.node_name, id,
                                          ask.cpu.count(), ask.memory);
  if (!counted.ok()) SetUnreadable(object, counted);
}

// Whether its annotations say what it has here.
bool ClusterLedger::AssignmentIs(const PodEntry& pod) const {
  const auto node = nodes_.find(pod.node);
  if (node == nodes_.end() || !pod.place) return false;
  const auto told = device::AssignmentFrom(pod.annotations, pod.ask.request,
                                           *node->second.node.inventory, options_.gpu_mem_unit);
  return told.ok() && *told && **told == pod.assignment;
}

// The pod's request with only those containers asking for devices that its annotations name GPUs
// for.
device::Request ClusterLedger::AssignedPart(const PodEntry& pod, const NodeEntry& node) const {
  device::Request part = pod.ask.request;
  const auto told =
      device::AssignmentFrom(pod.annotations, part, *node.node.inventory, options_.gpu_mem_unit);
  for (device::ContainerRequest& container : part.containers) {
    if (told.ok() && *told && (*told)->containers.contains(container.name)) continue;
    container = {.name = container.name, .phase = container.phase};
  }
  return part;
}

Result<Pick> ClusterLedger::PickOf(PodEntry& pod, const Question& question, const NodeEntry& node) {
  const placement::NodeSpec& spec = cluster_->spec(node.id);
  ASSIGN_OR_RETURN(const auto told,
                   device::AssignmentFrom(pod.annotations, pod.ask.request, *node.node.inventory,
                                          options_.gpu_mem_unit));
  Pick pick;
  const Demand& demand = question.demand.demand;
  std::vector<size_t> unknown;  // asks whose GPUs no annotation names
  for (size_t n = 0; n < demand.asks.size(); ++n) {
    const int count = demand.asks[n].count;
    if (told) {
      ASSIGN_OR_RETURN(pick.masks[n],
                       MaskOf(*told, pod.ask.request, question.demand.containers[n], count, spec));
    }
    if (pick.masks[n] == 0) {
      unknown.push_back(n);
    } else if (std::popcount(pick.masks[n]) != count) {
      return Error(Code::kInvalidArgument, "it has {} GPUs where it asks for {}",
                   std::popcount(pick.masks[n]), count);
    }
  }
  if (unknown.empty()) return pick;
  const std::optional<Pick> free = unknown.size() == demand.asks.size()
                                       ? FreePick(question, node.id)
                                       : FreeBeside(question, node, pick);
  if (!free) {
    return Error(Code::kFailedPrecondition,
                 "no annotation names its GPUs, and node {} has none left", spec.name);
  }
  for (const size_t n : unknown) {
    pick.masks[n] = free->masks[n];
    pod.guessed_asks.set(n);
  }
  return pick;
}

// GPUs that are free for the asks without any in `known`, beside those of `known`.
std::optional<Pick> ClusterLedger::FreeBeside(const Question& question, const NodeEntry& node,
                                              const Pick& known) const {
  Demand has = GpusOnly(question.demand.demand);
  Demand lacks = has;
  has.asks.clear();
  lacks.asks.clear();
  Pick of_has;
  const auto& asks = question.demand.demand.asks;
  for (size_t n = 0; n < asks.size(); ++n) {
    if (known.masks[n] == 0) {
      lacks.asks.push_back(asks[n]);
    } else {
      of_has.masks[has.asks.size()] = known.masks[n];
      has.asks.push_back(asks[n]);
    }
  }
  NodeTrial trial = TrialOf(node, [](const PodEntry&) { return true; });
  trial.Add(has, of_has);
  const std::optional<Pick> found = trial.PickFor(lacks);
  if (!found) return std::nullopt;
  Pick pick;
  for (size_t n = 0, next = 0; n < asks.size(); ++n) {
    if (known.masks[n] == 0) pick.masks[n] = found->masks[next++];
  }
  return pick;
}

void ClusterLedger::Settle(PodEntry& pod) {
  Release(pod);
  pod.problem.clear();
  const auto known = nodes_.find(pod.node);
  if (known == nodes_.end() || known->second.id == placement::kNoNode) {
    pod.problem = "its node has no GPUs that are known";
    return;
  }
  const NodeEntry& node = known->second;
  const auto settle = [&]() -> Status {
    Question question{.ask = pod.ask};
    RETURN_IF_ERROR(FillDemand(&question));
    Result<Pick> pick = PickOf(pod, question, node);
    Status doubt;
    if (!pick.ok()) {
      // An annotation that makes no sense does not free the GPU that the pod is on.
      doubt = pick.status();
      const std::optional<Pick> free = FreePick(question, node.id);
      if (free) {
        pick = *free;
        for (size_t n = 0; n < question.demand.demand.asks.size(); ++n) pod.guessed_asks.set(n);
      } else {
        // Some of its containers may run: what they have is not free.
        pod.guessed_asks.reset();
        question.ask.request = AssignedPart(pod, node);
        if (!question.ask.request.asks_for_devices()) return doubt;
        RETURN_IF_ERROR(FillDemand(&question));
        pick = PickOf(pod, question, node);
        if (!pick.ok()) return doubt;
      }
    }
    ASSIGN_OR_RETURN(pod.place, cluster_->Adopt(question.shape, node.id, *pick));
    pod.assignment = placement::AssignmentOf(question.ask.request, question.demand, *pick,
                                             cluster_->spec(node.id));
    pod.charges = ChargesOf(pod.ask, node, question.demand.demand, *pick);
    quota_.Record(pod.charges);
    Arrived(pod, question.shape);
    return doubt;
  };
  const Status status = settle();
  if (!status.ok()) pod.problem = status.message();
  if (pod.place) MoveGuesses(pod, node);
}

// Other pods whose GPUs were guessed before it was known what this one has: they get others.
void ClusterLedger::MoveGuesses(const PodEntry& told, const NodeEntry& node) {
  uint64_t contested = AssignedPick(told).all();
  const auto gpus = cluster_->node(node.id).gpus;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!IsOverassigned(gpus[i])) contested &= ~(uint64_t{1} << i);
  }
  if (contested == 0) return;
  for (const Uid& uid : PodsOn(node.node.name)) {
    PodEntry& other = pods_.find(uid)->second;
    if (&other == &told || !other.place || !other.guessed()) continue;
    const uint64_t guessed = cluster_->Find(*other.place)->pick.all() & ~AssignedPick(other).all();
    if ((guessed & contested) != 0) Settle(other);
  }
}

void ClusterLedger::Forget(const Uid& uid) {
  const auto known = pods_.find(uid);
  if (known == pods_.end() || known->second.standing != Standing::kAssumed) return;
  PodEntry& pod = known->second;
  Release(pod);
  MoveTo(pod, "");
  assumed_.erase(pod.ask.uid);
  pod.standing = Standing::kWaiting;
  if (!pod.seen) pods_.erase(known);
}

void ClusterLedger::Extend(const Uid& uid, Duration hold) {
  const auto known = pods_.find(uid);
  if (known == pods_.end() || known->second.standing != Standing::kAssumed) return;
  known->second.assumed_until = clock_->Now() + hold;
}

std::vector<std::string> ClusterLedger::Expire() {
  std::vector<Uid> expired;
  std::vector<std::string> names;
  const MonotonicTime now = clock_->Now();
  for (const Uid& uid : assumed_) {
    if (pods_.find(uid)->second.assumed_until <= now) expired.push_back(uid);
  }
  for (const Uid& uid : expired) {
    names.push_back(pods_.find(uid)->second.ask.Text());
    Forget(uid);
  }
  return names;
}

const PodEntry* ClusterLedger::FindPod(std::string_view ns, std::string_view name) const {
  for (const auto& [uid, pod] : pods_) {
    if (pod.ask.name == name && pod.ask.ns == ns) return &pod;
  }
  return nullptr;
}

}  // namespace tessera::ledger
