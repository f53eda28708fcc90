// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/extender.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "api/names.h"

namespace tessera::scheduler {
namespace {

// How long a binding waits for the watch to show its pod. Together with the deadline of the binding
// it is shorter than kube-scheduler's timeout.
constexpr Duration kWatchTimeout = std::chrono::milliseconds(500);
// An equal rejection of the same pod within this time is not recorded as another Event.
constexpr Duration kEventRepeatInterval = std::chrono::minutes(1);

Status NotReceivedError(const BindingArgs& args) {
  return Error(Code::kUnavailable, "pod {}/{} with UID {} has not been received from the watch yet",
               args.ns, args.pod, args.uid);
}

// gpu-admission's message, which users may search for.
constexpr std::string_view kNoDevice = "no GPU device";

size_t BestOf(const std::vector<float>& scores) {
  return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// Copies reasons, so that they outlive the query. A reason that thousands of nodes share is stored
// once.
class ReasonKeeper {
 public:
  explicit ReasonKeeper(FilterResult* result) : result_(result) {}
  std::string_view Keep(std::string_view reason) {
    std::string_view& kept = kept_[reason.data()];
    if (kept.size() != reason.size()) {
      kept = *result_->reasons.emplace_back(std::make_unique<const std::string>(reason));
    }
    return kept;
  }

 private:
  FilterResult* const result_;
  std::unordered_map<const char*, std::string_view> kept_;
};

void MarkFitting(placement::NodeId id, std::vector<bool>* fits) {
  if (id >= fits->size()) fits->resize(id + 1);
  (*fits)[id] = true;
}

// Points by the number of better nodes. kube-scheduler multiplies them by the extender's weight and
// by 10, and adds them to its own scores. Counts nodes by score instead of sorting them, because
// many nodes have equal scores.
std::vector<int> PointsOf(const std::vector<float>& scores, size_t best) {
  struct ScoreGroup {
    size_t nodes = 0;
    int points = 0;
  };
  boost::unordered_flat_map<float, ScoreGroup> groups;
  size_t fitting_count = 0;
  for (const float score : scores) {
    if (score == placement::kUnfit) continue;
    ++groups[score].nodes;
    ++fitting_count;
  }
  std::vector<std::pair<float, ScoreGroup*>> best_first;
  for (auto& [score, group] : groups) best_first.emplace_back(score, &group);
  std::ranges::sort(best_first, std::greater());
  // The best node gets 10 points (below), the next best 9, and the others fewer, evenly by rank.
  const size_t steps = std::max<size_t>(fitting_count, 2) - 1;
  size_t better = 0;
  for (const auto& [score, group] : best_first) {
    group->points = kMaxHostScore - 1 -
                    (better < 2 ? 0 : static_cast<int>((better - 1) * kMaxHostScore / steps));
    better += group->nodes;
  }
  std::vector<int> points(scores.size(), 0);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] != placement::kUnfit) points[i] = groups.at(scores[i]).points;
  }
  points[best] = kMaxHostScore;
  return points;
}

}  // namespace

Extender::Extender(ledger::ClusterLedger& ledger, Binder& binder, const Clock& clock,
                   SchedulerMetrics& metrics, FindPod find_pod, RecordEvent record_event,
                   HoldOptions hold)
    : ledger_(ledger),
      binder_(binder),
      clock_(clock),
      metrics_(metrics),
      find_pod_(std::move(find_pod)),
      record_event_(std::move(record_event)),
      holds_(ledger, binder, clock, find_pod_, hold) {}

Extender::~Extender() {
  for (auto& [uid, binding] : waiting_bindings_) {
    binding.done(Status(Code::kUnavailable, "this replica no longer leads"));
  }
}

Result<Extender::Query> Extender::MakeQuery(const kube::PodObject& pod) {
  const std::string who = "pod " + pod.meta.ns + "/" + pod.meta.name;
  if (const std::string why = binder_.UnsettledReason(pod.meta.uid); !why.empty()) {
    return Status(Code::kAborted, who + " " + why);
  }
  const auto known = ledger_.pods().find(pod.meta.uid);
  if (known != ledger_.pods().end() &&
      known->second.binding_state == ledger::BindingState::kBound) {
    return Error(Code::kAborted, "{} is already bound to node {}", who, known->second.node);
  }
  Result<Query> query = ledger_.MakeQuery(pod);
  if (!query.ok()) return query.status().Annotate(who);
  return query;
}

std::vector<const ledger::NodeEntry*> Extender::NodesOf(const ExtenderArgs& args) const {
  std::vector<const ledger::NodeEntry*> nodes(args.node_names.size());
  ledger_.FindNodes(args.node_names, nodes);
  return nodes;
}

FilterResult Extender::Filter(const ExtenderArgs& args) {
  FilterResult result;
  Result<Query> query = MakeQuery(args.pod);
  if (!query.ok()) {
    metrics_.rejected_pods.Add(InfoOf(query.status().code()).name);
    result.error = query.status().message();
    return result;
  }
  const std::vector<const ledger::NodeEntry*> nodes = NodesOf(args);
  result.fitting.reserve(nodes.size());
  std::vector<bool> fits;  // by NodeId
  ReasonKeeper reasons(&result);
  VerdictKinds kinds;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ledger::Verdict verdict = ledger_.Evaluate(*query, nodes[i]);
    kinds.Add(verdict);
    if (verdict.fits) {
      result.fitting.push_back(i);
      if (query->requests_gpus()) MarkFitting(nodes[i]->id, &fits);
    } else {
      (verdict.unresolvable ? result.unresolvable : result.failed)
          .emplace_back(i, reasons.Keep(verdict.reason));
    }
  }
  if (query->requests_gpus()) {
    wait_reasons_.Set(args.pod.meta.uid, kinds.Reason(), clock_.Now());
  }
  holds_.RecordFitting(args.pod, std::move(fits));
  if (result.fitting.empty()) {
    const bool any_allowed = std::ranges::any_of(
        query->quota_results, [](const auto& allowed) { return allowed.second.ok(); });
    metrics_.rejected_pods.Add(query->quota_results.empty() || any_allowed ? "no_node_fits"
                                                                           : "quota");
    RecordQuotaRejection(args.pod, *query);
  } else if (result.fitting.size() == 1 && query->requests_gpus()) {
    holds_.Hold(args.pod, *query, args.node_names[result.fitting[0]]);
  }
  return result;
}

bool Extender::HasGpus(std::string_view name) const {
  const ledger::NodeEntry* node = ledger_.FindNode(name);
  return node != nullptr && node->id != placement::kNoNode;
}

FilterResult Extender::FilterToOne(const ExtenderArgs& args) {
  FilterResult result = Filter(args);
  if (!result.error.empty()) return result;
  const std::string pod = "pod " + args.pod.meta.name;
  const auto keep = [&result](std::string text) -> std::string_view {
    return *result.reasons.emplace_back(std::make_unique<const std::string>(std::move(text)));
  };
  std::unordered_map<std::string_view, std::string_view> message_by_reason;
  for (auto* rejections : {&result.failed, &result.unresolvable}) {
    for (auto& [position, reason] : *rejections) {
      if (!HasGpus(args.node_names[position])) {
        reason = kNoDevice;
        continue;
      }
      std::string_view& message = message_by_reason[reason];
      if (message.empty()) {
        message = keep(fmt::format("{} does not match with this node: {}", pod, reason));
      }
      reason = message;
    }
  }
  if (result.fitting.size() < 2) return result;
  Result<Query> query = MakeQuery(args.pod);
  if (!query.ok() || !query->requests_gpus()) return result;
  const size_t best = BestOf(ScoresOf(args, *query));
  holds_.Hold(args.pod, *query, args.node_names[best]);
  const std::string_view other = keep(pod + " has already been matched to another node");
  for (const size_t i : result.fitting) {
    if (i != best) result.failed.emplace_back(i, other);
  }
  result.fitting = {best};
  return result;
}

std::vector<float> Extender::ScoresOf(const ExtenderArgs& args, const Query& query) {
  const std::span<const float> by_id = ledger_.Scores(query);
  const std::vector<const ledger::NodeEntry*> nodes = NodesOf(args);
  std::vector<float> scores(nodes.size(), placement::kUnfit);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (nodes[i] != nullptr && nodes[i]->id < by_id.size()) scores[i] = by_id[nodes[i]->id];
  }
  return scores;
}

std::vector<int> Extender::Prioritize(const ExtenderArgs& args) {
  std::vector<int> points(args.node_names.size(), 0);
  Result<Query> query = MakeQuery(args.pod);
  // For a pod without GPUs kube-scheduler's own scores decide.
  if (!query.ok() || !query->requests_gpus() || points.empty()) return points;
  const std::vector<float> scores = ScoresOf(args, *query);
  const size_t best = BestOf(scores);
  if (scores[best] == placement::kUnfit) return points;
  holds_.Hold(args.pod, *query, args.node_names[best]);
  return PointsOf(scores, best);
}

std::vector<int> Extender::PrioritizeCpuNodes(const ExtenderArgs& args) const {
  std::vector<int> points(args.node_names.size(), 0);
  for (size_t i = 0; i < points.size(); ++i) {
    points[i] = HasGpus(args.node_names[i]) ? 0 : 1;
  }
  return points;
}

Victims Extender::Preempt(const PreemptionArgs& args) {
  Result<Query> query = MakeQuery(args.pod);
  if (!query.ok()) return {};
  if (!query->requests_gpus()) return args.victims;
  Victims result;
  for (const auto& [node, proposed] : args.victims) {
    if (auto eviction = ledger_.Victims(*query, node, proposed)) {
      result[node] = *std::move(eviction);
    }
  }
  return result;
}

void Extender::Bind(const BindingArgs& args, Binder::Done done) {
  const std::string key = args.ns + "/" + args.pod;
  const kube::PodObject* pod = find_pod_(key);
  const bool filter_named_node = holds_.HasOpenAttempt(args.uid, args.node);
  if (pod == nullptr || pod->meta.uid != args.uid) {
    if (filter_named_node) {
      if (auto earlier = waiting_bindings_.extract(args.uid)) {
        earlier.mapped().done(
            Error(Code::kAborted, "a later binding of pod {} replaces this", key));
      }
      waiting_bindings_.emplace(args.uid, WaitingBinding{args, std::move(done), clock_.Now()});
      return;
    }
    // The feed does not keep pods without GPUs.
    const std::string problem =
        pod == nullptr ? "is unknown or requests no GPU" : "was replaced by another pod";
    return done(Error(Code::kNotFound, "pod {} with UID {} {}", key, args.uid, problem));
  }
  const auto request = ledger::PodRequestOf(*pod, {ledger_.options().gpu_mem_unit});
  if (request.ok() && !request->devices->requests_devices()) {
    return done(Error(Code::kInvalidArgument,
                      "pod {} requests no GPU: name the GPU resources in the extender's "
                      "managedResources, so that kube-scheduler binds such pods itself",
                      key));
  }
  // The binder's reason says more if the pod is bound or being bound.
  if (!filter_named_node && pod->node_name.empty() && binder_.UnsettledReason(args.uid).empty()) {
    return done(
        Error(Code::kFailedPrecondition,
              "pod {}: filter did not name node {} for the pod in this replica, or the attempt "
              "has ended: kube-scheduler must filter again",
              key, args.node));
  }
  const kube::PodObject copy = *pod;
  binder_.Bind(copy, args.node,
               [metrics = &metrics_, clock = &clock_, created = copy.meta.created,
                done = std::move(done)](const Status& status) {
                 if (status.ok() && created != WallTime{}) {
                   metrics->pod_wait.Observe(std::max(clock->WallNow() - created, Duration()));
                 }
                 done(status);
               });
  holds_.EndAttempt(args.uid);
}

void Extender::OnPod(const kube::PodObject& pod) {
  holds_.OnPod(pod);
  const auto found = waiting_bindings_.extract(pod.meta.uid);
  if (!found) return;
  const auto& [args, done, received_at] = found.mapped();
  clock_.Now() - received_at < kWatchTimeout ? Bind(args, done) : done(NotReceivedError(args));
}

void Extender::OnPodGone(const Uid& uid) { holds_.EndAttempt(uid); }

void Extender::RecordQuotaRejection(const kube::PodObject& pod, const Query& query) {
  std::string message;
  bool names_remaining = false;
  for (const auto& [model_and_pool, status] : query.quota_results) {
    if (status.ok()) continue;
    if (!message.empty()) message += "; ";
    message += status.message();
    names_remaining = names_remaining || status.code() == Code::kResourceExhausted;
  }
  if (message.empty()) return;
  // The quota is checked only for nodes with room. If no such node has a model of the quota, no
  // message has the remaining quota, so its lines are added.
  const std::string lines = ledger_.quota().TextOfLines(pod.meta.ns);
  if (!names_remaining && !lines.empty()) message += fmt::format(" ({})", lines);
  const auto recorded = recorded_events_.find(pod.meta.uid);
  const MonotonicTime now = clock_.Now();
  if (recorded != recorded_events_.end() && recorded->second.message == message &&
      now - recorded->second.recorded_at < kEventRepeatInterval) {
    return;
  }
  recorded_events_.insert_or_assign(pod.meta.uid, LastEvent{message, now});
  record_event_(pod, kube::EventKind::kWarning, names::kReasonQuotaExceeded, message);
}

void Extender::Tick() {
  metrics_.expired_holds.Add(ledger_.DropExpiredAssumptions().size());
  const MonotonicTime now = clock_.Now();
  holds_.Tick();
  wait_reasons_.ForgetPodsNotWaiting(ledger_, now);
  std::erase_if(waiting_bindings_, [&](auto& entry) {
    const auto& [args, done, received_at] = entry.second;
    if (now - received_at < kWatchTimeout) return false;
    done(NotReceivedError(args));
    return true;
  });
  std::erase_if(recorded_events_, [&](const auto& entry) {
    return now - entry.second.recorded_at > kEventRepeatInterval;
  });
}

}  // namespace tessera::scheduler
