// SPDX-License-Identifier: Apache-2.0
// The account of all GPUs of a cluster, kept from its Node and Pod objects: who holds which part of
// which GPU, what is free, what namespaces have used of their quota. Made of nothing but what the
// API server has, so whoever follows it (the scheduler, the command line, the console) has the same
// account, and a scheduler that starts anew has the old one's.
//
//   bound     the pod has a node. Its GPUs are those of its annotations, ours or the older
//   systems'.
//             Without any, it came past the scheduler: GPUs that fit are taken on suspicion until
//             the node's agent says which they are.
//   assumed   decided here, not seen bound yet. Its GPUs are taken for as long as Assume was told;
//             what the API server says next settles it.
//   waiting   has no node. It holds nothing.
//
// A pod is known by its UID: another of the same name is another pod. It holds its GPUs until it
// has ended or is gone, also while it is being deleted, because its processes still run.
//
// Conservation: Assume never gives out more of a GPU than it has. What is bound is recorded as it
// is, also where that is too much; then nothing more fits there until it is not. Amounts are those
// of the pod's request; annotations only say which GPUs, so a forged one takes no more than was
// asked for.
//
// CPU and memory of hosts are counted, because policies price them, but never refuse: that is
// kube-scheduler's to judge, and it has. Of a pod without GPUs nothing else is kept.
//
// Not for I/O (feed.h), nor for saying how a request over the network looks (src/scheduler).
// Threads: one. Cost: a pod or node that changes touches one node.
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
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/device/assignment.h"
#include "src/device/dialects.h"
#include "src/device/node.h"
#include "src/kube/objects.h"
#include "src/ledger/budgets.h"
#include "src/ledger/lacks.h"
#include "src/ledger/node_index.h"
#include "src/ledger/plain_pods.h"
#include "src/ledger/pod_ask.h"
#include "src/placement/cluster.h"
#include "src/placement/demand_of.h"
#include "src/placement/explain.h"
#include "src/placement/linked_groups.h"
#include "src/placement/policy.h"
#include "src/placement/quota.h"

namespace tessera::ledger {

class NodeTrial;

struct LedgerOptions {
  std::string policy = "Tessera";  // as placement::Policies() names them
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;
  device::NodeLabelKeys labels;
};

enum class Standing : uint8_t { kWaiting, kAssumed, kBound };

struct NodeEntry {
  // First, in one cache line, what a look at thousands of nodes reads.
  placement::NodeId id = placement::kNoNode;  // kNoNode where it has no GPUs that can be counted
  bool unschedulable = false;
  bool ready = false;
  // Why its GPUs cannot be counted: no more pods go there, and those there keep what was known.
  std::string problem;
  device::Node node;
  std::string
      model_label;  // what a label says its GPUs are, if they do not say so; quotas go by it
};

struct PodEntry {
  PodAsk ask;
  Standing standing = Standing::kWaiting;
  bool deleting = false;
  std::string node;               // "" while it waits
  device::Assignment assignment;  // empty where it holds no GPU
  // By position in its demand, the asks whose GPUs no annotation names: the pod bypassed the
  // scheduler, and its containers have not started.
  std::bitset<placement::kMaxAsks> guessed_asks;
  std::string nominated;    // the node for which kube-scheduler evicts other pods, for this one
  kube::StringMap labels;   // of a pod that asks for GPUs
  WallTime bound_at;        // by the API server's clock; the epoch while it waits
  WallTime created;         // likewise; the epoch where it is unknown
  bool controlled = false;  // has a controller, which replaces it when it is evicted
  std::string problem;      // why it asks for GPUs, is bound, and yet holds none here
  // For the ledger itself.
  device::Annotations annotations;
  std::optional<placement::PodId> place;
  std::vector<placement::QuotaCharge> charges;
  MonotonicTime assumed_until;
  bool arrived = false;  // the policy knows of it
  bool seen = false;     // by the API server; else assumed before its news came

  bool guessed() const { return guessed_asks.any(); }
};

// By UUID, what the pod's containers have of one device at one time: those that last together, or a
// single init container where that has more. The UUIDs live as long as the entry.
std::vector<std::pair<std::string_view, device::Share>> SharesOf(const PodEntry& pod);

// Whether a pod may have its GPUs on a node, and if not, why.
struct Verdict {
  bool fits = false;
  bool unresolvable = false;  // nobody who leaves makes room there
  // For people; empty where it fits. Valid until the ledger changes or is asked about another pod.
  std::string_view reason;
  // The kind of the reason for metrics: placement::IdOf a lack, or one of the kinds below.
  std::string_view kind;

  static constexpr std::string_view kUnknownNode = "unknown-node";
  static constexpr std::string_view kNodeProblem = "node-problem";
  static constexpr std::string_view kNoGpus = "no-gpus";
  static constexpr std::string_view kQuota = "quota";
  static constexpr std::string_view kReserved = "reserved";
};

class ClusterLedger {
 public:
  // INVALID_ARGUMENT for a policy that there is not. `clock` outlives it.
  static Result<std::unique_ptr<ClusterLedger>> Make(LedgerOptions options, const Clock* clock);
  ~ClusterLedger();
  ClusterLedger(const ClusterLedger&) = delete;
  ClusterLedger& operator=(const ClusterLedger&) = delete;

  // --- What the API server says. In any order; pods of a node that is not known yet wait for it.
  void SetNode(const kube::NodeObject& node);
  void RemoveNode(std::string_view name);
  void SetPod(const kube::PodObject& pod);
  void RemovePod(const Uid& uid);
  // The same for a pod without GPUs, of which only the UID's digest is known.
  void RemovePlainPod(const kube::UidDigest& digest) { plain_pods_->Remove(digest); }
  void SetQuota(placement::QuotaConfig config) { quota_.SetConfig(std::move(config)); }
  Budgets& budgets() { return budgets_; }

  // --- Questions. A Question is good until the ledger changes.
  struct Question {
    PodAsk ask;
    placement::PodDemand demand;       // all that the pod asks for
    placement::ShapeId shape = 0;      // of it
    placement::ShapeId gpus_only = 0;  // the same without CPU and memory

    bool asks_for_gpus() const { return !demand.demand.asks.empty(); }
    // What the quota says, by model, pool and a GPU's memory.
    std::map<std::tuple<std::string, std::string, int64_t>, Status> allowed;
    // By node: why GPUs that are free are kept for another pod.
    std::map<std::string, std::string> reserved;
  };
  // INVALID_ARGUMENT for a request that breaks a rule of its dialect. A pod that is assumed is
  // asked about as if it held nothing: it is forgotten first.
  Result<Question> Ask(const kube::PodObject& pod);
  Verdict Judge(Question& question, std::string_view node) {
    return Judge(question, FindNode(node));
  }
  // As FindNode gives it.
  Verdict Judge(Question& question, const NodeEntry* node);
  // Scores by NodeId, larger is better, placement::kUnfit where GPUs do not fit. By the policy that
  // the pod names, else by the ledger's. Valid until the next call.
  std::span<const float> Scores(const Question& question);
  // In one line, over all nodes.
  std::string Summary(const Question& question) const;
  // All there is to say about one node. NOT_FOUND for a node without GPUs.
  Result<placement::NodeReport> Report(const Question& question, std::string_view node);
  struct Eviction {
    std::vector<Uid> uids;
    int64_t pdb_violations = 0;  // how many of these evictions violate a PodDisruptionBudget
    bool operator==(const Eviction&) const = default;
  };
  // Which pods must leave `node` for this one to fit: of `proposed` (kube-scheduler's choice) and,
  // where these are not enough and the budgets are known, of other pods with lower priority there;
  // those whose eviction violates a budget only where there is no other way. No pod is named that
  // need not go, but for those of `proposed` without GPUs, which are there for other reasons.
  // Nothing where no eviction helps. GPUs that are reserved for pods of the same or higher priority
  // do not count as free.
  std::optional<Eviction> Victims(const Question& question, std::string_view node,
                                  const Eviction& proposed);

  // A bound pod that was assigned more of a GPU than pods that were bound before it leave. Two
  // schedulers, or a scheduler and a writer of annotations, decided without knowing of each other.
  struct Overassignment {
    std::string node;
    std::string gpu;  // UUID; one of them where there are several
    const PodEntry* excess = nullptr;
    const PodEntry* older = nullptr;  // the first to be bound of those that hold the GPU
  };
  // Valid until the ledger changes. Cost: a look at all GPUs.
  std::vector<Overassignment> Overassigned() const;

  // --- Decisions.
  // Chooses GPUs on the node and takes them for the pod, for `hold` from now or until the feed
  // shows it bound: who binds it holds it for as long as news of that may be late. Instead of what
  // it was assumed to have before. FAILED_PRECONDITION says what is missing; RESOURCE_EXHAUSTED and
  // PERMISSION_DENIED are the quota's; NOT_FOUND: no such node.
  struct Assumed {
    device::Assignment assignment;
    device::Annotations annotations;  // to be bound with: ours and those of the pod's dialect
  };
  Result<Assumed> Assume(const Question& question, std::string_view node, Duration hold);
  // The decision came to nothing. Of a pod that is bound nothing changes.
  void Forget(const Uid& uid);
  // What the pod was assumed to have is held for `hold` from now.
  void Extend(const Uid& uid, Duration hold);
  // Gives back what was assumed and has run out; gives their names, ns/name.
  std::vector<std::string> Expire();

  // --- Readers.
  using Nodes = std::map<std::string, NodeEntry, std::less<>>;
  using Pods = std::map<Uid, PodEntry>;
  const Nodes& nodes() const { return nodes_; }
  // Null where there is none.
  const NodeEntry* FindNode(std::string_view name) const { return by_name_.Find(name); }
  // The same for the thousands of names of a request; `out` is as long as `names`.
  void FindNodes(std::span<const std::string_view> names, std::span<const NodeEntry*> out) const {
    by_name_.Find(names, out);
  }
  // By UID, those that ask for GPUs and those that cannot be read; pods that have ended are not
  // there.
  const Pods& pods() const { return pods_; }
  const PodEntry* FindPod(std::string_view ns, std::string_view name) const;
  const placement::Cluster& cluster() const { return *cluster_; }
  const placement::Quota& quota() const { return quota_; }
  const LedgerOptions& options() const { return options_; }

 private:
  ClusterLedger(LedgerOptions options, const Clock* clock);

  Result<placement::PodDemand> DemandOf(const PodAsk& ask);
  Status FillDemand(Question* question);
  placement::Policy& PolicyFor(const PodAsk& ask);
  placement::NodeSpec SpecOf(const NodeEntry& entry);
  void Install(NodeEntry& entry);
  // Counts what a pod without GPUs takes of its node.
  void SetPlain(const kube::PodObject& object, const PodAsk& ask);
  void SetUnreadable(const kube::PodObject& object, const Status& why);

  // Of a bound pod: finds or guesses its GPUs and takes them.
  void Settle(PodEntry& pod);
  Result<placement::Pick> PickOf(PodEntry& pod, const Question& question, const NodeEntry& node);
  device::Request AssignedPart(const PodEntry& pod, const NodeEntry& node) const;
  void MoveGuesses(const PodEntry& told, const NodeEntry& node);
  bool AssignmentIs(const PodEntry& pod) const;
  std::optional<placement::Pick> FreePick(const Question& question, placement::NodeId id);
  std::optional<placement::Pick> FreeBeside(const Question& question, const NodeEntry& node,
                                            const placement::Pick& known) const;
  std::vector<placement::QuotaCharge> ChargesOf(const PodAsk& ask, const NodeEntry& node,
                                                const placement::Demand& demand,
                                                const placement::Pick& pick) const;
  const Status& Allowed(Question& question, const NodeEntry& node, const std::string& model,
                        Bytes gpu_memory) const;
  const Status& CheckQuota(Question& question, const NodeEntry& node) const;
  using PodFilter = std::function<bool(const PodEntry&)>;
  void Nominate(PodEntry& pod, const std::string& node);
  std::vector<const PodEntry*> NominatedBefore(const PodAsk& ask, const std::string& node) const;
  void AddTo(NodeTrial* trial, const PodEntry& pod) const;
  NodeTrial TrialOf(const NodeEntry& node, const PodFilter& stays) const;
  std::vector<std::pair<placement::Demand, placement::Pick>> ReservedOn(
      const NodeEntry& node, std::span<const PodEntry* const> nominated);
  // The node with what is reserved there before pods of this ask; nothing where nothing is.
  std::optional<NodeTrial> WithReserved(const PodAsk& ask, const NodeEntry& node);
  std::string_view ReservedReason(Question& question, const NodeEntry& node);
  // The GPUs of a pod with a place that are not guessed.
  placement::Pick AssignedPick(const PodEntry& pod) const;
  void AddOverassigned(const NodeEntry& node, std::vector<Overassignment>* all) const;
  // Takes the pod off its node; its entry stays.
  void Release(PodEntry& pod);
  void Leave(PodEntry& pod);
  const std::set<Uid>& PodsOn(const std::string& node) const;
  void MoveTo(PodEntry& pod, const std::string& node);
  void Arrived(PodEntry& pod, placement::ShapeId shape);

  const LedgerOptions options_;
  const Clock* const clock_;
  const std::unique_ptr<placement::Cluster> cluster_;
  Lacks lacks_;
  std::unique_ptr<placement::Policy> policy_;
  std::unique_ptr<placement::Policy> binpack_, spread_;  // made when a pod first names them
  placement::LinkedGroupsCache groups_;
  placement::Quota quota_;
  Nodes nodes_;
  NodeIndex by_name_;  // views of the keys of nodes_
  Pods pods_;
  std::optional<PlainPods> plain_pods_;                     // empty until there is a policy
  std::unordered_map<std::string, std::set<Uid>> pods_of_;  // by node
  std::set<Uid> assumed_;
  std::unordered_map<std::string, std::set<Uid>> nominated_;  // by node
  Budgets budgets_;
};

}  // namespace tessera::ledger
