// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/extender.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "api/names.h"
#include "src/scheduler/score_ranks.h"

namespace tessera::scheduler {
namespace {

// How long a binding waits for the watch to show its pod: with the deadline of its request less
// than kube-scheduler waits for us.
constexpr Duration kUnseen = std::chrono::milliseconds(500);

Status NotShown(const BindingArgs& args) {
  return Error(Code::kUnavailable, "pod {}/{} with UID {} is not shown by the watch yet", args.ns,
               args.pod, args.uid);
}

// What gpu-admission said, and people may look for.
constexpr std::string_view kNoDevice = "no GPU device";

size_t BestOf(const std::vector<float>& scores) {
  return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// Reasons outlive the question, each once for the thousands of nodes that have it.
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

void Mark(placement::NodeId id, std::vector<bool>* fits) {
  if (id >= fits->size()) fits->resize(id + 1);
  (*fits)[id] = true;
}

// Points by how many nodes are better. Few scores differ, so they are counted, not sorted.
std::vector<int> PointsOf(const std::vector<float>& scores, size_t best) {
  std::vector<int> points(scores.size(), 0);
  ScoreRanks ranks;
  for (const float score : scores) {
    if (score != placement::kUnfit) ranks.Add(score);
  }
  // 9 for the second, 0 for the last.
  const size_t steps = std::max<size_t>(ranks.count(), 2) - 1;
  ranks.Rank([&](size_t better) {
    return kMaxHostScore - 1 -
           (better < 2 ? 0 : static_cast<int>((better - 1) * kMaxHostScore / steps));
  });
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] != placement::kUnfit) points[i] = ranks.Of(scores[i]);
  }
  points[best] = kMaxHostScore;
  return points;
}

}  // namespace

Extender::Extender(ledger::ClusterLedger& ledger, Binder& binder, const Clock& clock,
                   SchedulerMetrics& metrics, FindPod find_pod, Tell tell, ExtenderOptions options)
    : ledger_(ledger),
      binder_(binder),
      clock_(clock),
      metrics_(metrics),
      find_pod_(std::move(find_pod)),
      tell_(std::move(tell)),
      options_(options),
      holds_(ledger, binder, clock, find_pod_, options.hold) {}

Extender::~Extender() {
  for (auto& [uid, early] : early_) {
    early.done(Status(Code::kUnavailable, "this replica does not lead any more"));
  }
}

Result<Extender::Question> Extender::Ask(const kube::PodObject& pod) {
  const std::string who = "pod " + pod.meta.ns + "/" + pod.meta.name;
  if (const std::string why = binder_.Unsettled(pod.meta.uid); !why.empty()) {
    return Status(Code::kAborted, who + " " + why);
  }
  const auto known = ledger_.pods().find(pod.meta.uid);
  if (known != ledger_.pods().end() && known->second.standing == ledger::Standing::kBound) {
    return Error(Code::kAborted, "{} is bound to node {} already", who, known->second.node);
  }
  Result<Question> question = ledger_.Ask(pod);
  if (!question.ok()) return question.status().Annotate(who);
  return question;
}

std::vector<const ledger::NodeEntry*> Extender::NodesOf(const ExtenderArgs& args) const {
  std::vector<const ledger::NodeEntry*> nodes(args.names.size());
  ledger_.FindNodes(args.names, nodes);
  return nodes;
}

FilterResult Extender::Filter(const ExtenderArgs& args) {
  FilterResult result;
  Result<Question> question = Ask(args.pod);
  if (!question.ok()) {
    metrics_.refused.Add(InfoOf(question.status().code()).name);
    result.error = question.status().message();
    return result;
  }
  const std::vector<const ledger::NodeEntry*> nodes = NodesOf(args);
  result.fitting.reserve(nodes.size());
  std::vector<bool> fits;  // by NodeId
  ReasonKeeper reasons(&result);
  VerdictKinds kinds;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ledger::Verdict verdict = ledger_.Judge(*question, nodes[i]);
    kinds.Add(verdict);
    if (verdict.fits) {
      result.fitting.push_back(i);
      if (question->asks_for_gpus()) Mark(nodes[i]->id, &fits);
    } else {
      (verdict.unresolvable ? result.unresolvable : result.failed)
          .emplace_back(i, reasons.Keep(verdict.reason));
    }
  }
  if (question->asks_for_gpus()) {
    wait_reasons_.Note(args.pod.meta.uid, kinds.Reason(), clock_.Now());
  }
  holds_.Name(args.pod, std::move(fits));
  if (result.fitting.empty()) {
    const bool any_allowed = std::ranges::any_of(
        question->allowed, [](const auto& allowed) { return allowed.second.ok(); });
    metrics_.refused.Add(question->allowed.empty() || any_allowed ? "no_node_fits" : "quota");
    TellOfQuota(args.pod, *question);
  } else if (result.fitting.size() == 1 && question->asks_for_gpus()) {
    holds_.Hold(args.pod, *question, args.names[result.fitting[0]]);
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
  std::unordered_map<std::string_view, std::string_view> in_its_words;
  for (auto* refusals : {&result.failed, &result.unresolvable}) {
    for (auto& [position, reason] : *refusals) {
      if (!HasGpus(args.names[position])) {
        reason = kNoDevice;
        continue;
      }
      std::string_view& words = in_its_words[reason];
      if (words.empty()) {
        words = keep(fmt::format("{} does not match with this node: {}", pod, reason));
      }
      reason = words;
    }
  }
  if (result.fitting.size() < 2) return result;
  Result<Question> question = Ask(args.pod);
  if (!question.ok() || !question->asks_for_gpus()) return result;
  const size_t best = BestOf(ScoresOf(args, *question));
  holds_.Hold(args.pod, *question, args.names[best]);
  const std::string_view other = keep(pod + " has already been matched to another node");
  for (const size_t i : result.fitting) {
    if (i != best) result.failed.emplace_back(i, other);
  }
  result.fitting = {best};
  return result;
}

std::vector<float> Extender::ScoresOf(const ExtenderArgs& args, const Question& question) {
  const std::span<const float> by_id = ledger_.Scores(question);
  const std::vector<const ledger::NodeEntry*> nodes = NodesOf(args);
  std::vector<float> scores(nodes.size(), placement::kUnfit);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (nodes[i] != nullptr && nodes[i]->id < by_id.size()) scores[i] = by_id[nodes[i]->id];
  }
  return scores;
}

std::vector<int> Extender::Prioritize(const ExtenderArgs& args) {
  std::vector<int> points(args.names.size(), 0);
  Result<Question> question = Ask(args.pod);
  // A pod without GPUs is nothing to us; kube-scheduler's own scores decide.
  if (!question.ok() || !question->asks_for_gpus() || points.empty()) return points;
  const std::vector<float> scores = ScoresOf(args, *question);
  const size_t best = BestOf(scores);
  if (scores[best] == placement::kUnfit) return points;
  holds_.Hold(args.pod, *question, args.names[best]);
  return PointsOf(scores, best);
}

std::vector<int> Extender::PrioritizeCpuNodes(const ExtenderArgs& args) const {
  std::vector<int> points(args.names.size(), 0);
  for (size_t i = 0; i < points.size(); ++i) {
    points[i] = HasGpus(args.names[i]) ? 0 : 1;
  }
  return points;
}

Victims Extender::Preempt(const PreemptionArgs& args) {
  Result<Question> question = Ask(args.pod);
  if (!question.ok()) return {};
  if (!question->asks_for_gpus()) return args.victims;
  Victims result;
  for (const auto& [node, proposed] : args.victims) {
    auto eviction = ledger_.Victims(
        *question, node, {.uids = proposed.uids, .pdb_violations = proposed.pdb_violations});
    if (!eviction) continue;
    result[node] = {.uids = std::move(eviction->uids), .pdb_violations = eviction->pdb_violations};
  }
  return result;
}

void Extender::Bind(const BindingArgs& args, Binder::Done done) {
  const std::string key = args.ns + "/" + args.pod;
  const kube::PodObject* pod = find_pod_(key);
  const bool named = holds_.Named(args.uid, args.node);
  if (pod == nullptr || pod->meta.uid != args.uid) {
    if (named) {
      early_.insert_or_assign(args.uid, Early{args, std::move(done), clock_.Now()});
      return;
    }
    // Pods without GPUs are not among those that the feed keeps.
    const std::string other =
        pod == nullptr ? "is not known, or asks for no GPU" : "is another one now";
    return done(Error(Code::kNotFound, "pod {} with UID {} {}", key, args.uid, other));
  }
  const auto ask = ledger::PodAskOf(*pod, {ledger_.options().gpu_mem_unit});
  if (ask.ok() && !ask->request.asks_for_devices()) {
    return done(Error(Code::kInvalidArgument,
                      "pod {} asks for no GPU: kube-scheduler binds such pods itself where "
                      "managedResources of the extender names the resources",
                      key));
  }
  // What is being bound, or is, has a better reason.
  if (!named && pod->node_name.empty() && binder_.Unsettled(args.uid).empty()) {
    return done(Error(Code::kFailedPrecondition,
                      "pod {}: filter did not name node {} for it in this replica, or its attempt "
                      "was given up since: kube-scheduler has to ask anew",
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
  holds_.Drop(args.uid);
}

void Extender::OnPod(const kube::PodObject& pod) {
  holds_.OnPod(pod);
  const auto found = early_.extract(pod.meta.uid);
  if (!found) return;
  const auto& [args, done, at] = found.mapped();
  clock_.Now() - at < kUnseen ? Bind(args, done) : done(NotShown(args));
}

void Extender::OnPodGone(const kube::PodObject& last) { holds_.Drop(last.meta.uid); }

void Extender::TellOfQuota(const kube::PodObject& pod, const Question& question) {
  std::string message;
  bool says_what_is_left = false;
  for (const auto& [model_and_pool, status] : question.allowed) {
    if (status.ok()) continue;
    if (!message.empty()) message += "; ";
    message += status.message();
    says_what_is_left = says_what_is_left || status.code() == Code::kResourceExhausted;
  }
  if (message.empty()) return;
  // Where the models of the quota have no room, only those were asked about that are not in it.
  const std::string lines = ledger_.quota().TextOfLines(pod.meta.ns);
  if (!says_what_is_left && !lines.empty()) message += fmt::format(" ({})", lines);
  const auto told = told_.find(pod.meta.uid);
  const MonotonicTime now = clock_.Now();
  if (told != told_.end() && told->second.message == message &&
      now - told->second.at < options_.repeat_event) {
    return;
  }
  told_.insert_or_assign(pod.meta.uid, Told{message, now});
  tell_(pod, kube::EventKind::kWarning, names::kReasonQuotaExceeded, message);
}

void Extender::Tick() {
  metrics_.expired.Add(ledger_.Expire().size());
  const MonotonicTime now = clock_.Now();
  holds_.Tick();
  wait_reasons_.Tidy(ledger_, now);
  std::erase_if(early_, [&](auto& entry) {
    const auto& [args, done, at] = entry.second;
    if (now - at < kUnseen) return false;
    done(NotShown(args));
    return true;
  });
  std::erase_if(told_,
                [&](const auto& entry) { return now - entry.second.at > options_.repeat_event; });
}

}  // namespace tessera::scheduler
