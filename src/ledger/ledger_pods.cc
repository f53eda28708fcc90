// SPDX-License-Identifier: Apache-2.0
// Adds, updates and removes single pods.
#include <algorithm>
#include <bit>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/device/pod_annotations.h"
#include "src/ledger/ledger.h"
#include "src/ledger/node_trial.h"

namespace tessera::ledger {
namespace {

using placement::Demand;
using placement::NodeId;
using placement::Pick;

// The positions of the GPUs that `assignment` names for one GPU demand of `count`. The GPUs of all
// its containers count, because the agent keeps an init container's GPUs until its pod ends.
// Ignores the GPUs of an init container if an annotation gives it other GPUs than the main
// containers.
Result<uint64_t> MaskOf(const device::Assignment& assignment, const device::DeviceRequest& request,
                        const std::vector<size_t>& containers, int count,
                        const placement::Cluster& cluster, NodeId node) {
  uint64_t lasting = 0, init = 0;
  for (const size_t i : containers) {
    const device::ContainerRequest& container = request.containers[i];
    const auto shares = assignment.containers.find(container.name);
    if (shares == assignment.containers.end()) continue;
    for (const device::DeviceShare& share : shares->second) {
      const std::optional<size_t> position = cluster.PositionOf(node, share.uuid);
      if (!position) {
        return Error(Code::kNotFound,
                     "container \"{}\" has GPU {}, which does not exist on node {}", container.name,
                     share.uuid, cluster.name(node));
      }
      (container.phase == device::Phase::kInit ? init : lasting) |= uint64_t{1} << *position;
    }
  }
  if (lasting == 0) return init;
  return std::popcount(lasting) < count ? lasting | init : lasting;
}

uint64_t HashOf(const StringMap& map) {
  uint64_t hash = 0;
  for (const auto& [key, value] : map) hash = Fnv1a(value, Fnv1a("=", Fnv1a(key, hash)));
  return hash;
}

}  // namespace

device::Assignment PodEntry::assignment() const {
  device::Assignment assignment;
  for (const HeldDevice& device : held_devices) {
    assignment.containers[request.devices->containers[device.container].name].push_back(
        {device.uuid.str(), MilliGpu(device.milli), device.memory});
  }
  return assignment;
}

void PodEntry::SetAssignment(const device::Assignment& assignment) {
  held_devices.clear();
  const std::vector<device::ContainerRequest>& containers = request.devices->containers;
  for (uint32_t i = 0; i < containers.size(); ++i) {
    const auto devices = assignment.containers.find(containers[i].name);
    if (devices == assignment.containers.end()) continue;
    for (const device::DeviceShare& share : devices->second) {
      held_devices.push_back({.uuid = UuidText(share.uuid),
                              .memory = share.memory,
                              .container = i,
                              .milli = static_cast<int32_t>(share.compute.count())});
    }
  }
  held_devices.shrink_to_fit();
}

void PodEntry::SetProblem(std::string_view problem) {
  if (rare->problem == problem) return;
  rare.Update([&](RareFields& changed) { changed.problem = problem; });
}

std::vector<std::pair<std::string, device::Share>> SharesOf(const PodEntry& pod) {
  std::vector<std::pair<UuidText, device::Share>> sums;
  const auto sum_of = [&](const UuidText& uuid) -> device::Share& {
    for (auto& [known, sum] : sums) {
      if (known == uuid) return sum;
    }
    return sums.emplace_back(uuid, device::Share()).second;
  };
  const auto add = [&](bool init) {
    for (const PodEntry::HeldDevice& device : pod.held_devices) {
      const auto phase = pod.request.devices->containers[device.container].phase;
      if ((phase == device::Phase::kInit) != init) continue;
      device::Share& sum = sum_of(device.uuid);
      const MilliGpu compute(device.milli);
      sum.compute = init ? std::max(sum.compute, compute) : sum.compute + compute;
      sum.memory = init ? std::max(sum.memory, device.memory) : sum.memory + device.memory;
    }
  };
  add(false);
  add(true);
  std::vector<std::pair<std::string, device::Share>> shares;
  shares.reserve(sums.size());
  for (const auto& [uuid, sum] : sums) {
    shares.push_back({uuid.str(), {std::min(sum.compute, kWholeGpu), sum.memory}});
  }
  return shares;
}

const std::vector<Uid>& ClusterLedger::PodsOn(const std::string& node) const {
  static const std::vector<Uid> kNone;
  const auto found = pods_of_node_.find(node);
  return found == pods_of_node_.end() ? kNone : found->second;
}

void ClusterLedger::MoveTo(PodEntry& pod, const std::string& node) {
  if (pod.node == node) return;
  if (!pod.node.empty()) {
    const auto old = pods_of_node_.find(pod.node);
    std::vector<Uid>& pods = old->second;
    pods.erase(std::ranges::lower_bound(pods, pod.request.uid));
    if (pods.empty()) pods_of_node_.erase(old);
  }
  pod.node = node;
  if (node.empty()) return;
  std::vector<Uid>& pods = pods_of_node_[node];
  pods.insert(std::ranges::lower_bound(pods, pod.request.uid), pod.request.uid);
}

void ClusterLedger::ReportArrival(PodEntry& pod, placement::ShapeId shape) {
  if (!std::exchange(pod.arrived, true)) policy_->OnArrival(shape);
}

// Drops annotations that repeat the assignment. No other annotation is lost, because AssignmentFrom
// reads only annotation tessera.dev/assignment if it exists.
void ClusterLedger::DropAnnotations(PodEntry& pod) {
  const auto text = pod.rare->annotations.find(names::kAnnotationAssignment);
  if (text == pod.rare->annotations.end()) return;
  const Result<std::string> same = device::EncodeAssignment(pod.assignment());
  pod.annotations_dropped = same.ok() && *same == text->second;
  if (pod.annotations_dropped) {
    pod.rare.Update([](PodEntry::RareFields& rare) { rare.annotations.clear(); });
  }
}

void ClusterLedger::RestoreAnnotations(PodEntry& pod) {
  if (!std::exchange(pod.annotations_dropped, false)) return;
  pod.rare.Update([&](PodEntry::RareFields& rare) {
    rare.annotations.emplace(names::kAnnotationAssignment,
                             device::EncodeAssignment(pod.assignment()).value());
  });
}

void ClusterLedger::Release(PodEntry& pod) {
  RestoreAnnotations(pod);
  if (pod.placed_id) (void)cluster_->Remove(*pod.placed_id);
  if (!pod.charges->empty()) (void)quota_.Refund(*pod.charges);
  pod.placed_id.reset();
  pod.charges = {};
  pod.held_devices = {};
  pod.guessed_gpu_demands.reset();
}

void ClusterLedger::RemoveFromNode(PodEntry& pod) {
  if (pod.placed_id && pod.arrived) {
    if (const placement::PlacedPod* placed = cluster_->Find(*pod.placed_id))
      policy_->OnDeparture(placed->shape);
  }
  Release(pod);
  MoveTo(pod, "");
  assumed_.erase(pod.request.uid);
}

void ClusterLedger::RemovePod(const Uid& uid) {
  cpu_pods_->Remove(uid);
  const auto known = pods_.find(uid);
  if (known == pods_.end()) return;
  Nominate(known->second, "");
  RemoveFromNode(known->second);
  pods_.erase(known);
}

void ClusterLedger::SetPod(const kube::PodObject& object) {
  if (object.ended()) return RemovePod(object.meta.uid);
  Result<PodRequest> request = PodRequestOf(object, {options_.gpu_mem_unit});
  if (!request.ok()) return SetInvalidPod(object, request.status());
  if (!request->devices->requests_devices()) return SetCpuPod(object, *request);
  PodEntry& pod = pods_[object.meta.uid];
  pod.received = true;
  pod.deleting = object.meta.deleting;
  pod.controlled = object.meta.has_controller;
  pod.created = object.meta.created;
  if (!object.node_name.empty()) {
    pod.bound_at = object.scheduled_at == WallTime{} ? object.meta.created : object.scheduled_at;
  }
  if (*pod.labels != object.meta.labels) pod.labels = labels_.Get(SharedValue(object.meta.labels));
  if (pod.gates() != object.gates) {
    pod.rare.Update([&](PodEntry::RareFields& rare) { rare.gates = object.gates; });
  }
  if (object.node_name.empty()) {
    pod.request.uid = object.meta.uid;
    Nominate(pod, object.meta.deleting ? "" : object.nominated_node);
    // The API server may not have processed the binding yet.
    if (pod.binding_state == BindingState::kAssumed) return;
    SetRequest(pod, *std::move(request));
    pod.binding_state = BindingState::kWaiting;
    BeginWaiting(pod);
    return;
  }
  Nominate(pod, "");
  const uint64_t annotations_hash = HashOf(object.meta.annotations);
  const bool unchanged = pod.binding_state == BindingState::kBound &&
                         pod.node == object.node_name && pod.request == *request &&
                         pod.annotations_hash == annotations_hash;
  if (unchanged) return;
  pod.rare.Update([&](PodEntry::RareFields& rare) {
    rare.annotations = object.meta.annotations;
    rare.assumed_until = {};
  });
  pod.annotations_hash = annotations_hash;
  pod.annotations_dropped = false;
  // A pod that was bound as assumed keeps its GPUs unchanged.
  const bool as_assumed = pod.binding_state == BindingState::kAssumed &&
                          pod.node == object.node_name && pod.request.devices == request->devices &&
                          MatchesAnnotations(pod);
  assumed_.erase(object.meta.uid);
  pod.binding_state = BindingState::kBound;
  SetRequest(pod, *std::move(request));
  MoveTo(pod, object.node_name);
  if (as_assumed) return DropAnnotations(pod);
  TakeGpus(pod);
}

void ClusterLedger::SetRequest(PodEntry& pod, PodRequest request) {
  if (!(pod.request.devices == request.devices)) Release(pod);
  pod.request = std::move(request);
  pod.request.devices = requests_.Get(pod.request.devices);
  pod.request.constraints = constraints_.Get(pod.request.constraints);
}

void ClusterLedger::BeginWaiting(PodEntry& pod) {
  if (pod.arrived) return;
  const Result<placement::PodDemand> demand = DemandOf(pod.request);
  if (!demand.ok()) {
    pod.SetProblem(demand.status().message());
    return;
  }
  const Result<placement::ShapeId> shape = cluster_->Intern(demand->demand);
  if (shape.ok()) ReportArrival(pod, *shape);
}

// Takes the UID by value, because RemovePod destroys the entry into which a reference may point.
PodEntry ClusterLedger::TakeOut(Uid uid) {  // NOLINT(performance-unnecessary-value-param)
  PodEntry entry = pods_.at(uid);
  RemovePod(uid);
  return entry;
}

void ClusterLedger::PutBack(PodEntry entry) {
  const std::string node = std::exchange(entry.node, "");
  const std::string nominated = entry.nominated_node();
  entry.rare.Update([](PodEntry::RareFields& rare) { rare.nominated_node.clear(); });
  RestoreAnnotations(entry);
  // TakeOut has released what these members refer to.
  entry.placed_id.reset();
  entry.charges = {};
  entry.held_devices = {};
  entry.arrived = false;
  PodEntry& pod = pods_[entry.request.uid];
  pod = std::move(entry);
  Nominate(pod, nominated);
  MoveTo(pod, node);
  if (!pod.request.devices->requests_devices()) return;  // its request is invalid
  node.empty() ? BeginWaiting(pod) : TakeGpus(pod);
}

// The agent also rejects a pod with an invalid request, so the pod holds nothing.
void ClusterLedger::SetInvalidPod(const kube::PodObject& object, const Status& error) {
  RemovePod(object.meta.uid);
  PodEntry& pod = pods_[object.meta.uid];
  pod.request = {.uid = object.meta.uid, .ns = object.meta.ns, .name = object.meta.name};
  pod.received = true;
  pod.created = object.meta.created;
  pod.deleting = object.meta.deleting;
  pod.SetProblem(error.message());
  pod.binding_state = object.node_name.empty() ? BindingState::kWaiting : BindingState::kBound;
  MoveTo(pod, object.node_name);
}

void ClusterLedger::SetCpuPod(const kube::PodObject& object, const PodRequest& request) {
  if (pods_.contains(request.uid)) RemovePod(request.uid);  // its request was invalid before
  if (object.node_name.empty()) return;                     // a waiting pod takes nothing
  const NodeEntry* node = FindNode(object.node_name);
  const NodeId id = node == nullptr ? placement::kNoNode : node->id;
  const Status counted =
      cpu_pods_->Set(request.uid, object.node_name, id, request.cpu.count(), request.memory);
  if (!counted.ok()) SetInvalidPod(object, counted);
}

Result<std::optional<device::Assignment>> ClusterLedger::AnnotatedGpus(
    const PodEntry& pod, const NodeEntry& node) const {
  // Only the annotations of older systems refer to the GPUs of the node by number.
  const bool needs_inventory = !pod.rare->annotations.contains(names::kAnnotationAssignment);
  return device::AssignmentFrom(
      pod.rare->annotations, *pod.request.devices,
      needs_inventory ? node.node.inventory.Full() : device::NodeInventory(),
      options_.gpu_mem_unit);
}

// Whether the pod's annotations name the GPUs of its assignment.
bool ClusterLedger::MatchesAnnotations(const PodEntry& pod) const {
  const auto node = nodes_.find(pod.node);
  if (node == nodes_.end() || !pod.placed_id) return false;
  const auto annotated = AnnotatedGpus(pod, node->second);
  return annotated.ok() && *annotated && **annotated == pod.assignment();
}

// The pod's request, reduced to the containers for which its annotations name GPUs.
device::DeviceRequest ClusterLedger::RequestWithAnnotations(const PodEntry& pod,
                                                            const NodeEntry& node) const {
  device::DeviceRequest part = *pod.request.devices;
  const auto annotated = AnnotatedGpus(pod, node);
  for (device::ContainerRequest& container : part.containers) {
    if (annotated.ok() && *annotated && (*annotated)->containers.contains(container.name)) continue;
    container = {.name = container.name, .phase = container.phase};
  }
  return part;
}

Result<Pick> ClusterLedger::PickOf(PodEntry& pod, const Query& query, const NodeEntry& node) {
  ASSIGN_OR_RETURN(const auto annotated, AnnotatedGpus(pod, node));
  Pick pick;
  const Demand& demand = query.demand.demand;
  std::vector<size_t> unknown;  // GPU demands whose GPUs no annotation names
  for (size_t n = 0; n < demand.gpu_demands.size(); ++n) {
    const int count = demand.gpu_demands[n].count;
    if (annotated) {
      ASSIGN_OR_RETURN(pick.masks[n],
                       MaskOf(*annotated, *pod.request.devices, query.demand.containers[n], count,
                              *cluster_, node.id));
    }
    if (pick.masks[n] == 0) {
      unknown.push_back(n);
    } else if (std::popcount(pick.masks[n]) != count) {
      return Error(Code::kInvalidArgument, "its annotations name {} GPUs, but it requests {}",
                   std::popcount(pick.masks[n]), count);
    }
  }
  if (unknown.empty()) return pick;
  const std::optional<Pick> free = unknown.size() == demand.gpu_demands.size()
                                       ? FreePick(query, node.id)
                                       : FreeBeside(query, node, pick);
  if (!free) {
    return Error(Code::kFailedPrecondition,
                 "no annotation names its GPUs, and node {} has no free GPUs", node.node.name);
  }
  for (const size_t n : unknown) {
    pick.masks[n] = free->masks[n];
    pod.guessed_gpu_demands.set(n);
  }
  return pick;
}

// Free GPUs for those GPU demands that have no GPUs in `known`. GPUs of `known` count as taken.
std::optional<Pick> ClusterLedger::FreeBeside(const Query& query, const NodeEntry& node,
                                              const Pick& known) const {
  Demand known_demand = GpusOnly(query.demand.demand);
  Demand missing_demand = known_demand;
  known_demand.gpu_demands.clear();
  missing_demand.gpu_demands.clear();
  Pick known_pick;
  const auto& gpu_demands = query.demand.demand.gpu_demands;
  for (size_t n = 0; n < gpu_demands.size(); ++n) {
    if (known.masks[n] == 0) {
      missing_demand.gpu_demands.push_back(gpu_demands[n]);
    } else {
      known_pick.masks[known_demand.gpu_demands.size()] = known.masks[n];
      known_demand.gpu_demands.push_back(gpu_demands[n]);
    }
  }
  NodeTrial trial = TrialOf(node, [](const PodEntry&) { return true; });
  trial.Add(known_demand, known_pick);
  const std::optional<Pick> found = trial.PickFor(missing_demand);
  if (!found) return std::nullopt;
  Pick pick;
  for (size_t n = 0, next = 0; n < gpu_demands.size(); ++n) {
    if (known.masks[n] == 0) pick.masks[n] = found->masks[next++];
  }
  return pick;
}

void ClusterLedger::TakeGpus(PodEntry& pod) {
  Release(pod);
  pod.SetProblem("");
  const auto known = nodes_.find(pod.node);
  if (known == nodes_.end() || known->second.id == placement::kNoNode) {
    pod.SetProblem("its node has no known GPUs");
    return;
  }
  const NodeEntry& node = known->second;
  const auto assign_gpus = [&]() -> Status {
    Query query{.request = pod.request};
    RETURN_IF_ERROR(FillDemand(&query));
    Result<Pick> pick = PickOf(pod, query, node);
    Status annotation_error;
    if (!pick.ok()) {
      // An invalid annotation does not free the GPU that the pod uses.
      annotation_error = pick.status();
      const std::optional<Pick> free = FreePick(query, node.id);
      if (free) {
        pick = *free;
        for (size_t n = 0; n < query.demand.demand.gpu_demands.size(); ++n)
          pod.guessed_gpu_demands.set(n);
      } else {
        // No GPUs are free for all containers. The containers whose GPUs the annotations name may
        // run, so these GPUs are taken.
        pod.guessed_gpu_demands.reset();
        query.request.devices = SharedValue(RequestWithAnnotations(pod, node));
        if (!query.request.devices->requests_devices()) return annotation_error;
        RETURN_IF_ERROR(FillDemand(&query));
        pick = PickOf(pod, query, node);
        if (!pick.ok()) return annotation_error;
      }
    }
    ASSIGN_OR_RETURN(pod.placed_id, cluster_->Adopt(query.shape, node.id, *pick));
    pod.SetAssignment(
        placement::AssignmentOf(*query.request.devices, query.demand, *pick, *cluster_, node.id));
    pod.charges =
        charges_.Get(SharedValue(ChargesOf(pod.request, node, query.demand.demand, *pick)));
    quota_.ChargeUnchecked(*pod.charges);
    ReportArrival(pod, query.shape);
    return annotation_error;
  };
  const Status status = assign_gpus();
  if (!status.ok()) pod.SetProblem(status.message());
  if (pod.placed_id) MoveGuessedGpus(pod, node);
  DropAnnotations(pod);
}

// Moves guessed GPUs of other pods away from GPUs that `assigned` holds by its annotations.
void ClusterLedger::MoveGuessedGpus(const PodEntry& assigned, const NodeEntry& node) {
  uint64_t contested = AssignedPick(assigned).all();
  const auto gpus = cluster_->node(node.id).gpus;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!IsOverassigned(gpus[i])) contested &= ~(uint64_t{1} << i);
  }
  if (contested == 0) return;
  for (const Uid& uid : PodsOn(node.node.name)) {
    PodEntry& other = pods_.find(uid)->second;
    if (&other == &assigned || !other.placed_id || !other.guessed()) continue;
    const uint64_t guessed =
        cluster_->Find(*other.placed_id)->pick.all() & ~AssignedPick(other).all();
    if ((guessed & contested) != 0) TakeGpus(other);
  }
}

void ClusterLedger::DropAssumption(const Uid& uid) {
  const auto known = pods_.find(uid);
  if (known == pods_.end() || known->second.binding_state != BindingState::kAssumed) return;
  PodEntry& pod = known->second;
  Release(pod);
  MoveTo(pod, "");
  assumed_.erase(pod.request.uid);
  pod.binding_state = BindingState::kWaiting;
  if (!pod.received) pods_.erase(known);
}

void ClusterLedger::ExtendAssumption(const Uid& uid, Duration hold) {
  const auto known = pods_.find(uid);
  if (known == pods_.end() || known->second.binding_state != BindingState::kAssumed) return;
  known->second.rare.Update(
      [&](PodEntry::RareFields& rare) { rare.assumed_until = clock_->Now() + hold; });
}

std::vector<std::string> ClusterLedger::DropExpiredAssumptions() {
  std::vector<Uid> expired;
  std::vector<std::string> names;
  const MonotonicTime now = clock_->Now();
  for (const Uid& uid : assumed_) {
    if (pods_.find(uid)->second.rare->assumed_until <= now) expired.push_back(uid);
  }
  for (const Uid& uid : expired) {
    names.push_back(pods_.find(uid)->second.request.Text());
    DropAssumption(uid);
  }
  return names;
}

const PodEntry* ClusterLedger::FindPod(std::string_view ns, std::string_view name) const {
  for (const auto& [uid, pod] : pods_) {
    if (pod.request.name == name && pod.request.ns == ns) return &pod;
  }
  return nullptr;
}

}  // namespace tessera::ledger
