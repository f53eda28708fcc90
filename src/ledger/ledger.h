// SPDX-License-Identifier: Apache-2.0
// Accounts for all GPUs of a cluster, computed from its Node and Pod objects: which pod holds which
// part of which GPU, what is free, and how much of its quota each namespace uses. The only input is
// the state of the API server, so every component that follows it (scheduler, command line)
// computes the same account, and a restarted scheduler recovers the previous one.
//
//   bound     The pod has a node. Its GPUs are named by its annotations, Tessera's or the older
//             systems'. A pod without such annotations bypassed the scheduler: it holds guessed
//             GPUs, that is, GPUs that fit, until the node's agent publishes the real GPUs.
//   assumed   This process has decided, and the API server has not shown the pod bound yet. The
//             pod holds its GPUs for the time given to Assume; the next state from the API server
//             replaces the assumption.
//   waiting   The pod has no node and holds nothing.
//
// A pod is identified by its UID: another pod of the same name is a different pod. It holds its
// GPUs until it has ended or is deleted, also while it is being deleted, because its processes
// still run.
//
// Oversubscription check: Assume never exceeds the capacity of a GPU. Bound pods are recorded as
// they are, even if they exceed the capacity; then nothing more fits on that GPU until enough of
// them end. Amounts come from the pod's request, and annotations only name the GPUs, so a forged
// annotation takes no more than the pod requests.
//
// The ledger counts the CPU and memory of nodes, because policies price them. A lack of them never
// causes a rejection, because kube-scheduler has already checked them. For a pod without GPUs the
// ledger keeps only its CPU and memory.
//
// Does no I/O (feed.h does) and does not know the extender's protocol (src/scheduler does).
// Threads: one. Cost: a changed pod or node touches one node.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "src/base/clock.h"
#include "src/base/shared_pool.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/uid.h"
#include "src/base/uuid_text.h"
#include "src/device/assignment.h"
#include "src/device/dialects.h"
#include "src/device/node.h"
#include "src/kube/objects.h"
#include "src/ledger/budgets.h"
#include "src/ledger/cpu_pods.h"
#include "src/ledger/node_index.h"
#include "src/ledger/pod_request.h"
#include "src/ledger/unfit_reasons.h"
#include "src/placement/cluster.h"
#include "src/placement/demand_of.h"
#include "src/placement/explain.h"
#include "src/placement/linked_groups.h"
#include "src/placement/policy.h"
#include "src/placement/quota.h"

namespace tessera::ledger {

class NodeTrial;

struct LedgerOptions {
  std::string policy{placement::kDefaultPolicy};  // a name in placement::Policies()
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;
  device::NodeLabelKeys labels;
};

enum class BindingState : uint8_t { kWaiting, kAssumed, kBound };

struct NodeEntry {
  // The fields that an evaluation of thousands of nodes reads come first, in one cache line.
  placement::NodeId id = placement::kNoNode;  // kNoNode if no GPUs are known
  bool unschedulable = false;
  bool ready = false;
  // One bit for each device::Dialect, a family of resource names such as nvidia.com/*, that the
  // kubelet offers. A bit stays set while pods hold all units, and for five minutes after the
  // device plugin has ended. 0: unknown, because the node offers none or
  // ExtraKeptFields::scheduling_constraints is not set.
  uint8_t offered_dialects = 0;
  // Why the GPUs of the node cannot be counted. The node gets no more pods, and its pods keep the
  // GPUs that were known last.
  std::string problem;
  device::Node node;
  Uid uid;
  int64_t gpu_mem_units = 0;  // allocatable aliyun.com/gpu-mem
  std::string model_label;    // model label, "" if all GPUs match it; quotas use it
  // Taints, and labels: all of them with ExtraKeptFields::scheduling_constraints, else those of
  // KeptNodeFields.
  SharedValue<kube::NodeTraits> traits;
  std::string internal_ip;  // "" if none; only shown to users

  // Whether the node has GPUs, or a problem keeps it from having any.
  bool has_gpus_or_problem() const {
    return id != placement::kNoNode || !problem.empty() ||
           !node.inventory.without_uuids().problem.empty();
  }
};

// A pod. A cluster has tens of thousands of pods with GPUs, so values that most pods share or lack
// take no memory of their own.
struct PodEntry {
  PodRequest request;
  BindingState binding_state = BindingState::kWaiting;
  bool deleting = false;
  bool controlled = false;  // has a controller, which replaces an evicted pod
  std::string node;         // "" while it waits
  // Which GPU demands have guessed GPUs, by position: no annotation names their GPUs, because the
  // pod bypassed the scheduler and these containers have not started.
  std::bitset<placement::kMaxGpuDemands> guessed_gpu_demands;
  SharedValue<StringMap> labels;  // only if the pod requests GPUs
  WallTime bound_at;              // by the API server's clock; the epoch while the pod waits
  WallTime created;               // by the same clock; the epoch if it is unknown
  SharedValue<std::vector<placement::QuotaCharge>> charges;

  bool guessed() const { return guessed_gpu_demands.any(); }
  bool holds_gpus() const { return !held_devices.empty(); }
  // Empty if the pod holds no GPU. Computed for each call.
  device::Assignment assignment() const;
  // Why a bound pod that requests GPUs holds none.
  const std::string& problem() const { return rare->problem; }
  // Remaining scheduling gates.
  const std::vector<std::string>& gates() const { return rare->gates; }
  // status.nominatedNodeName: kube-scheduler evicts pods there for it.
  const std::string& nominated_node() const { return rare->nominated_node; }

  // Only the ledger uses the members below.

  // Keeps the devices of the containers that `request` has.
  void SetAssignment(const device::Assignment& assignment);
  void SetProblem(std::string_view problem);

  // A device of a container.
  struct HeldDevice {
    UuidText uuid;
    Bytes memory;
    uint32_t container = 0;  // its position in the request
    int32_t milli = 0;
  };
  std::vector<HeldDevice> held_devices;
  // Fields that most pods lack.
  struct RareFields {
    std::string problem, nominated_node;
    std::vector<std::string> gates;
    StringMap annotations;
    MonotonicTime assumed_until;
    bool operator==(const RareFields&) const = default;
  };
  SharedValue<RareFields> rare;
  uint64_t annotations_hash = 0;
  std::optional<placement::PodId> placed_id;
  bool annotations_dropped = false;  // because they only repeat the assignment
  bool arrived = false;              // reported to the policy
  bool received = false;             // the API server has shown the pod; else it is only assumed
};

// By UUID, the most that the pod's containers hold of a device at one time: the sum over main
// containers and sidecars, or a single init container if it holds more.
std::vector<std::pair<std::string, device::Share>> SharesOf(const PodEntry& pod);

// Thousandths of GPUs by model.
using UseByModel = std::map<std::string, int64_t>;
struct NamespaceUse {
  UseByModel used;
  placement::NamespaceQuota quota;  // no limits and no pools if the namespace has no entry
};

// Whether the GPUs that a pod requests are available on a node, and if not, why.
struct Verdict {
  bool fits = false;
  bool unresolvable = false;  // no eviction makes room on the node
  // For users; empty if the pod fits. Valid until the ledger changes or is queried for another pod.
  std::string_view reason;
  // The kind of the reason for metrics: placement::MetricLabelOf, or one of the kinds below.
  std::string_view kind;

  static constexpr std::string_view kUnknownNode = "unknown-node";
  static constexpr std::string_view kNodeProblem = "node-problem";
  static constexpr std::string_view kNoKnownGpus = "no-known-gpus";
  static constexpr std::string_view kQuota = "quota";
  static constexpr std::string_view kReserved = "reserved";
};

class ClusterLedger {
 public:
  // INVALID_ARGUMENT for an unknown policy. `clock` outlives the ledger.
  static Result<std::unique_ptr<ClusterLedger>> Make(LedgerOptions options, const Clock* clock);
  ~ClusterLedger();
  ClusterLedger(const ClusterLedger&) = delete;
  ClusterLedger& operator=(const ClusterLedger&) = delete;

  // --- State of the API server, in any order. Pods of a node that is not known yet wait for it.
  // Returns whether the node's entry has changed. Another UID is another node, which replaces it.
  bool SetNode(const kube::NodeObject& node);
  void RemoveNode(std::string_view name);
  void SetPod(const kube::PodObject& pod);
  void RemovePod(const Uid& uid);
  // Removes the pod, so that queries are answered as if it did not exist, and returns its entry.
  // PutBack adds it again with its GPUs. REQUIRES: the pod is waiting or bound.
  PodEntry TakeOut(Uid uid);
  void PutBack(PodEntry entry);
  void SetQuota(placement::QuotaConfig config) { quota_.SetConfig(std::move(config)); }
  Budgets& budgets() { return budgets_; }

  // --- Queries. A Query is valid until the ledger changes.
  struct Query {
    PodRequest request;
    placement::PodDemand demand;       // all that the pod requests
    placement::ShapeId shape = 0;      // of `demand`
    placement::ShapeId gpus_only = 0;  // shape of `demand` without CPU and memory

    bool requests_gpus() const { return !demand.demand.gpu_demands.empty(); }
    // Results of the quota check, by model, pool and the GPU's device memory.
    std::map<std::tuple<std::string, std::string, int64_t>, Status> quota_results;
    // By node: a text that names the nominated pod for which the node's free GPUs are reserved.
    std::map<std::string, std::string> reserved_reasons;
  };
  // INVALID_ARGUMENT for a request that breaks a rule of its dialect. Forgets the pod first if it
  // is assumed, so that its own GPUs count as free.
  Result<Query> MakeQuery(const kube::PodObject& pod);
  Result<Query> MakeQuery(PodRequest request);
  Verdict Evaluate(Query& query, std::string_view node) { return Evaluate(query, FindNode(node)); }
  // `node` is the result of FindNode.
  Verdict Evaluate(Query& query, const NodeEntry* node);
  // Whether the quota of the pod's namespace allows its GPUs on the node. Ignores whether the node
  // has room. RESOURCE_EXHAUSTED and PERMISSION_DENIED give the reason. Valid as long as the query.
  const Status& CheckQuota(Query& query, const NodeEntry& node) const;
  // Why kube-scheduler rejects the node for this pod before it calls the extender. Besides the
  // kinds of kube::Exclusion: "cordoned", "not-ready" and "not-offered". Only with
  // ExtraKeptFields::scheduling_constraints.
  static std::optional<kube::Exclusion> WhyLeftOut(const PodRequest& pod, const NodeEntry& node);
  // Scores by NodeId; larger is better, placement::kUnfit if the GPUs do not fit. The policy is the
  // policy that the pod names, else the ledger's. Valid until the next call.
  std::span<const float> Scores(const Query& query);
  // One line about all nodes, with the most frequent reason first.
  std::string Summary(const Query& query) const;
  // The full explanation of one node. NOT_FOUND for a node without GPUs.
  Result<placement::NodeReport> Report(const Query& query, std::string_view node);
  struct Eviction {
    std::vector<Uid> uids;
    int64_t pdb_violations = 0;  // evictions that violate a PodDisruptionBudget
    bool operator==(const Eviction&) const = default;
  };
  // The pods to evict from `node` so that this pod fits. Candidates are the pods of `proposed`
  // (kube-scheduler's victims) and, if these do not suffice and the budgets are known, other pods
  // of lower priority on the node. Pods whose eviction violates a budget are chosen last. The
  // result is minimal, except that it keeps the pods of `proposed` without GPUs, which
  // kube-scheduler proposed for other resources. nullopt if no eviction helps. GPUs reserved for
  // nominated pods of the same or higher priority do not count as free.
  std::optional<Eviction> Victims(const Query& query, std::string_view node,
                                  const Eviction& proposed);

  // A bound pod whose share of a GPU exceeds what the pods bound before it left free. The cause is
  // that two schedulers, or a scheduler and another writer of annotations, decided concurrently.
  struct Overassignment {
    std::string node;
    std::string gpu;  // UUID; one of them if several are affected
    const PodEntry* excess = nullptr;
    const PodEntry* older = nullptr;  // the pod bound first on that GPU
  };
  // Valid until the ledger changes. Cost: a pass over all GPUs.
  std::vector<Overassignment> FindOverassignments() const;

  // Picks GPUs on the node and assumes them for the pod, until `hold` has passed or the feed shows
  // the pod bound. `hold` must exceed the longest delay of a watch event. Replaces an earlier
  // assumption. FAILED_PRECONDITION states what is missing; RESOURCE_EXHAUSTED and
  // PERMISSION_DENIED come from the quota; NOT_FOUND: unknown node.
  struct Assumption {
    device::Assignment assignment;
    // The annotations to write with the binding: Tessera's annotations, and the annotations of the
    // pod's dialect.
    StringMap annotations;
  };
  Result<Assumption> Assume(const Query& query, std::string_view node, Duration hold);
  // Drops the assumption of the pod. Does nothing for a bound pod.
  void DropAssumption(const Uid& uid);
  // Sets the end of the pod's assumption to `hold` from now.
  void ExtendAssumption(const Uid& uid, Duration hold);
  // Drops all assumptions that have ended. Returns the names of their pods, "ns/name".
  std::vector<std::string> DropExpiredAssumptions();

  // --- Readers.
  using Nodes = std::map<std::string, NodeEntry, std::less<>>;
  using Pods = std::map<Uid, PodEntry>;
  const Nodes& nodes() const { return nodes_; }
  // Null if no node has this name.
  const NodeEntry* FindNode(std::string_view name) const { return by_name_.Find(name); }
  // Finds a node by its UID. Cost: a pass over all nodes.
  const NodeEntry* FindNode(const Uid& uid) const;
  // FindNode for each of the thousands of names of a request. REQUIRES: `out` is as long as
  // `names`.
  void FindNodes(std::span<const std::string_view> names, std::span<const NodeEntry*> out) const {
    by_name_.Find(names, out);
  }
  // By UID: pods that request GPUs, and pods whose request is invalid. Pods that have ended are
  // removed.
  const Pods& pods() const { return pods_; }
  // Null if no pod has this name. Cost: a pass over all pods.
  const PodEntry* FindPod(std::string_view ns, std::string_view name) const;
  // The pods on this node, sorted by UID.
  const std::vector<Uid>& PodsOn(const std::string& node) const;
  // The unit in which the nodes offer aliyun.com/gpu-mem, by the first node that does; kGiB without
  // such a node.
  device::MemoryUnit OfferedMemoryUnit() const;
  const placement::Cluster& cluster() const { return *cluster_; }
  const placement::Quota& quota() const { return quota_; }
  // The namespaces that have a quota or use GPUs. Cost: a pass over all pods.
  std::map<std::string, NamespaceUse> QuotaUse() const;
  const LedgerOptions& options() const { return options_; }

 private:
  ClusterLedger(LedgerOptions options, const Clock* clock);

  Result<placement::PodDemand> DemandOf(const PodRequest& request);
  Status FillDemand(Query* query);
  placement::Policy& PolicyFor(const PodRequest& request);
  placement::NodeSpec SpecOf(const NodeEntry& entry);
  void UpdateCluster(NodeEntry& entry);
  // Counts the CPU and memory of a pod without GPUs.
  void SetCpuPod(const kube::PodObject& object, const PodRequest& request);
  // Records a pod whose request is invalid; it holds nothing.
  void SetInvalidPod(const kube::PodObject& object, const Status& error);
  // Reports a new pod without a node to the policy.
  void BeginWaiting(PodEntry& pod);

  // For a bound pod: finds or guesses its GPUs and takes them.
  void TakeGpus(PodEntry& pod);
  Result<placement::Pick> PickOf(PodEntry& pod, const Query& query, const NodeEntry& node);
  device::DeviceRequest RequestWithAnnotations(const PodEntry& pod, const NodeEntry& node) const;
  // Frees GPUs that the pod holds for another request.
  void SetRequest(PodEntry& pod, PodRequest request);
  void MoveGuessedGpus(const PodEntry& assigned, const NodeEntry& node);
  // The GPUs that the pod's annotations name; nullopt without such annotations.
  Result<std::optional<device::Assignment>> AnnotatedGpus(const PodEntry& pod,
                                                          const NodeEntry& node) const;
  bool MatchesAnnotations(const PodEntry& pod) const;
  std::optional<placement::Pick> FreePick(const Query& query, placement::NodeId id);
  std::optional<placement::Pick> FreeBeside(const Query& query, const NodeEntry& node,
                                            const placement::Pick& known) const;
  std::vector<placement::QuotaCharge> ChargesOf(const PodRequest& request, const NodeEntry& node,
                                                const placement::Demand& demand,
                                                const placement::Pick& pick) const;
  const Status& QuotaResult(Query& query, const NodeEntry& node, const std::string& model,
                            Bytes gpu_memory) const;
  using PodFilter = std::function<bool(const PodEntry&)>;
  void Nominate(PodEntry& pod, const std::string& node);
  // The waiting pods nominated to the node that have at least the priority of `request`, highest
  // priority first. As in kube-scheduler, they precede the request.
  std::vector<const PodEntry*> NominatedBefore(const PodRequest& request,
                                               const std::string& node) const;
  void AddTo(NodeTrial* trial, const PodEntry& pod) const;
  NodeTrial TrialOf(const NodeEntry& node, const PodFilter& stays) const;
  std::vector<std::pair<placement::Demand, placement::Pick>> ReservedOn(
      const NodeEntry& node, std::span<const PodEntry* const> nominated);
  // The node with the GPUs that are reserved for nominated pods ahead of this request; nullopt if
  // no GPUs are reserved.
  std::optional<NodeTrial> WithReserved(const PodRequest& request, const NodeEntry& node);
  std::string_view ReservedReason(Query& query, const NodeEntry& node);
  // The GPUs of a placed pod without guessed GPUs.
  placement::Pick AssignedPick(const PodEntry& pod) const;
  void AddOverassigned(const NodeEntry& node, std::vector<Overassignment>* all) const;
  static void DropAnnotations(PodEntry& pod);
  static void RestoreAnnotations(PodEntry& pod);
  // Frees the pod's GPUs and quota; its entry stays.
  void Release(PodEntry& pod);
  void RemoveFromNode(PodEntry& pod);
  void MoveTo(PodEntry& pod, const std::string& node);
  void ReportArrival(PodEntry& pod, placement::ShapeId shape);

  const LedgerOptions options_;
  const Clock* const clock_;
  const std::unique_ptr<placement::Cluster> cluster_;
  UnfitReasons unfit_reasons_;
  std::unique_ptr<placement::Policy> policy_;
  std::unique_ptr<placement::Policy> binpack_policy_,
      spread_policy_;  // created when a pod first names them
  placement::LinkedGroupsCache groups_;
  placement::Quota quota_;
  device::SharedInventory::Pool inventories_;
  Nodes nodes_;
  NodeIndex by_name_;  // views of the keys of nodes_
  Pods pods_;
  std::optional<CpuPods> cpu_pods_;  // empty until the policy is created
  std::unordered_map<std::string, std::vector<Uid>> pods_of_node_;  // by node; sorted
  SharedPool<device::DeviceRequest> requests_;
  SharedPool<StringMap> labels_;
  SharedPool<kube::NodeConstraints> constraints_;
  SharedPool<kube::NodeTraits> traits_;
  SharedPool<std::vector<placement::QuotaCharge>> charges_;
  std::set<Uid> assumed_;
  std::unordered_map<std::string, std::set<Uid>> nominated_;  // by node
  Budgets budgets_;
};

}  // namespace tessera::ledger
