// SPDX-License-Identifier: Apache-2.0
#include "src/replay/timeline.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "src/placement/fit.h"
#include "src/replay/fragmentation_meter.h"
#include "src/replay/moves.h"
#include "src/replay/sample.h"
#include "src/replay/workload.h"

namespace tessera::replay {
namespace {

using placement::Demand;
using placement::NodeId;
using placement::PodId;
using placement::ShapeId;

// Means of several amounts over equal parts of a time span.
class Averages {
 public:
  // The amounts, in thousandths of GPUs. kWaiting: requested by waiting pods.
  static constexpr size_t kAllocated = 0, kFragmented = 1, kWaiting = 2, kAmounts = 3;
  using Amounts = std::array<double, kAmounts>;

  explicit Averages(int64_t span)
      : part_length_(std::max(static_cast<double>(span) / kTimelinePoints, 1e-9)),
        sums_(kTimelinePoints) {}

  // Adds the amounts between two times, both relative to the start of the span.
  void Add(int64_t from, int64_t to, const Amounts& amounts) {
    const double end = std::min(static_cast<double>(to), part_length_ * kTimelinePoints);
    for (double at = static_cast<double>(from); at < end;) {
      const auto part = std::min(static_cast<size_t>(at / part_length_), sums_.size() - 1);
      double next = std::min(end, part_length_ * static_cast<double>(part + 1));
      if (next <= at || part + 1 == sums_.size()) next = end;  // rounding
      for (size_t n = 0; n < kAmounts; ++n) sums_[part][n] += (next - at) * amounts[n];
      at = next;
    }
  }

  double part_length() const { return part_length_; }
  double Mean(size_t part, size_t amount) const { return sums_[part][amount] / part_length_; }
  double Total(size_t amount) const {
    double total = 0;
    for (const Amounts& sum : sums_) total += sum[amount];
    return total;
  }

 private:
  double part_length_;
  std::vector<Amounts> sums_;
};

class Timeline {
 public:
  Timeline(const std::vector<TracePod>& pods, Sample sample, LoadedTrace loaded, bool moves)
      : pods_(pods),
        arrivals_(std::move(sample.arrivals)),
        loaded_(std::move(loaded)),
        cluster_(*loaded_.cluster),
        perform_moves_(moves),
        meter_(cluster_, loaded_.mix),
        begin_(sample.begin),
        averages_(sample.end - sample.begin) {}

  Result<TimelineResult> Run(const std::string& policy, uint64_t seed) {
    const placement::PolicyOptions policy_options{.seed = seed, .mix = loaded_.mix};
    ASSIGN_OR_RETURN(policy_, placement::MakePolicy(policy, cluster_, policy_options));
    mover_ = std::make_unique<Mover>(cluster_, *policy_, [this](PodId before, PodId now) {
      auto entry = running_.extract(before);
      entry.key() = now;
      pod_ids_[entry.mapped()] = now;
      running_.insert(std::move(entry));
    });
    pod_ids_.resize(arrivals_.size());
    result_.policy = policy;
    result_.seed = seed;
    MakeQueues();
    RETURN_IF_ERROR(Simulate());
    Finish();
    return std::move(result_);
  }

 private:
  static constexpr uint32_t kNoQueue = UINT32_MAX;

  struct PodEnd {
    int64_t time;
    uint32_t arrival;
    bool operator>(const PodEnd& other) const {
      return std::pair(time, arrival) > std::pair(other.time, other.arrival);
    }
  };
  // Waiting pods of one shape. Between events no shape with waiting pods fits on any node.
  struct ShapeQueue {
    Demand demand;
    std::deque<uint32_t> waiting;  // arrivals
  };

  const TracePod& PodOf(uint32_t arrival) const { return pods_[arrivals_[arrival].pod]; }

  Status Simulate() {
    for (uint32_t next = 0; next < arrivals_.size() || !ends_.empty();) {
      int64_t time = ends_.empty() ? INT64_MAX : ends_.top().time;
      if (next < arrivals_.size()) time = std::min(time, arrivals_[next].created);
      AdvanceTo(time);
      EndPods();
      RETURN_IF_ERROR(Retry());
      for (; next < arrivals_.size() && arrivals_[next].created == now_; ++next) {
        RETURN_IF_ERROR(Arrive(next));
      }
    }
    return {};
  }

  // Pods that fit on no empty node get kNoQueue, because they would wait forever.
  void MakeQueues() {
    queue_of_.assign(pods_.size(), kNoQueue);
    std::unordered_map<Demand, uint32_t, placement::DemandHash> queue_of_demand;
    for (size_t i = 0; i < pods_.size(); ++i) {
      const auto& demand = loaded_.demands[i];
      if (!demand) continue;
      const auto [entry, is_new] = queue_of_demand.try_emplace(*demand, kNoQueue);
      for (NodeId node = 0; node < cluster_.size() && is_new; ++node) {
        if (!Fits(cluster_.node(node), *demand)) continue;
        entry->second = static_cast<uint32_t>(queues_.size());
        queues_.push_back({.demand = *demand});
        break;
      }
      queue_of_[i] = entry->second;
    }
  }

  void AdvanceTo(int64_t time) {
    const double allocated = static_cast<double>(cluster_.total_milli() - cluster_.free_milli());
    averages_.Add(now_ - begin_, time - begin_,
                  {allocated, meter_.total(), static_cast<double>(waiting_milli_)});
    now_ = time;
  }

  void EndPods() {
    for (; !ends_.empty() && ends_.top().time <= now_; ends_.pop()) {
      const PodId id = pod_ids_[ends_.top().arrival];
      const placement::PlacedPod pod = *cluster_.Find(id);
      policy_->OnDeparture(pod.shape);
      TESSERA_CHECK(cluster_.Remove(id).ok());
      meter_.Update(pod.node);
      running_.erase(id);
      freed_nodes_.insert(pod.node);
    }
  }

  Status Arrive(uint32_t arrival) {
    const uint32_t queue = queue_of_[arrivals_[arrival].pod];
    if (queue == kNoQueue) {
      ++result_.never_scheduled;
      return {};
    }
    ASSIGN_OR_RETURN(const ShapeId shape, cluster_.Intern(queues_[queue].demand));
    policy_->OnArrival(shape);
    std::deque<uint32_t>& waiting = queues_[queue].waiting;
    if (waiting.empty()) {
      ASSIGN_OR_RETURN(const bool placed, Start(arrival, shape));
      if (placed) return {};
    }
    ++result_.blocked.waited;
    if (waiting.empty() && TryMoves(arrival, shape)) return Retry();
    if (waiting.empty()) waiting_queues_.insert(queue);
    waiting.push_back(arrival);
    waiting_milli_ += PodOf(arrival).milli();
    return {};
  }

  // Looks only at freed nodes: on the other nodes, waiting pods did not fit at the last Retry, and
  // nothing has become free since.
  bool FitsOnFreedNode(const Demand& demand) const {
    return std::any_of(freed_nodes_.begin(), freed_nodes_.end(),
                       [&](NodeId node) { return Fits(cluster_.node(node), demand); });
  }

  // Tries waiting pods in their order of arrival. Within one pass resources only shrink, so a shape
  // that does not fit is not retried.
  Status Retry() {
    if (freed_nodes_.empty()) return {};
    std::set<std::pair<uint32_t, uint32_t>> candidates;  // first arrival, queue
    for (const uint32_t queue : waiting_queues_) {
      if (FitsOnFreedNode(queues_[queue].demand)) {
        candidates.emplace(queues_[queue].waiting.front(), queue);
      }
    }
    while (!candidates.empty()) {
      const auto [arrival, number] = *candidates.begin();
      candidates.erase(candidates.begin());
      ShapeQueue& queue = queues_[number];
      if (!FitsOnFreedNode(queue.demand)) continue;
      ASSIGN_OR_RETURN(const ShapeId shape, cluster_.Intern(queue.demand));
      ASSIGN_OR_RETURN(const bool placed, Start(arrival, shape));
      if (!placed) continue;
      waiting_milli_ -= PodOf(arrival).milli();
      queue.waiting.pop_front();
      if (queue.waiting.empty()) {
        waiting_queues_.erase(number);
      } else {
        candidates.emplace(queue.waiting.front(), number);
      }
    }
    freed_nodes_.clear();
    return {};
  }

  Result<bool> Start(uint32_t arrival, ShapeId shape) {
    const auto decision = policy_->Choose(shape);
    if (!decision) return false;
    ASSIGN_OR_RETURN(const PodId pod, cluster_.Place(shape, decision->node, decision->pick));
    meter_.Update(decision->node);
    RecordStart(arrival, pod);
    return true;
  }

  void RecordStart(uint32_t arrival, PodId pod) {
    pod_ids_[arrival] = pod;
    running_[pod] = arrival;
    ends_.push({now_ + arrivals_[arrival].lifetime, arrival});
    const int64_t wait = now_ - arrivals_[arrival].created;
    result_.waits[static_cast<size_t>(SizeOf(PodOf(arrival)))].push_back(wait);
    const auto milli = static_cast<double>(PodOf(arrival).milli());
    started_milli_ += milli;
    weighted_waits_ += milli * static_cast<double>(wait);
  }

  // Looks for moves of other pods that make room. With perform_moves_, makes the moves and starts
  // the pod. Returns whether the pod has started.
  bool TryMoves(uint32_t arrival, ShapeId shape) {
    if (PodOf(arrival).gpus == 0 || !mover_->HasEnoughIdle(shape)) return false;
    ++result_.blocked.enough_idle;
    auto made = mover_->MakeRoom(shape);
    if (!made) return false;
    ++result_.blocked.room_by_moves;
    result_.blocked.moved += made->moved.size();
    if (!perform_moves_) {
      mover_->Undo(&*made);
      return false;
    }
    for (const placement::PlacedPod& old : made->old_places) {
      meter_.Update(old.node);
      freed_nodes_.insert(old.node);
    }
    for (const PodId pod : made->moved) meter_.Update(cluster_.Find(pod)->node);
    RecordStart(arrival, *made->placed);
    return true;
  }

  void Finish() {
    const double capacity = static_cast<double>(cluster_.total_milli());
    const double span = averages_.part_length() * kTimelinePoints;
    result_.nodes = cluster_.size();
    result_.capacity_milli = cluster_.total_milli();
    result_.peak_milli = PeakMilli(pods_, arrivals_);
    result_.observed_seconds = span;
    result_.pods = arrivals_.size();
    result_.gpu_hours = averages_.Total(Averages::kAllocated) / 1000 / 3600;
    result_.allocation = 100 * averages_.Total(Averages::kAllocated) / (capacity * span);
    result_.fragmentation = 100 * averages_.Total(Averages::kFragmented) / (capacity * span);
    result_.mean_wait = weighted_waits_ / std::max(started_milli_, 1.0);
    result_.last_pod_end = static_cast<double>(now_ - begin_);
    for (auto& waits : result_.waits) std::sort(waits.begin(), waits.end());
    for (size_t part = 0; part < kTimelinePoints; ++part) {
      result_.points.push_back(
          {.seconds = averages_.part_length() * static_cast<double>(part + 1),
           .allocation = 100 * averages_.Mean(part, Averages::kAllocated) / capacity,
           .fragmentation = 100 * averages_.Mean(part, Averages::kFragmented) / capacity,
           .waiting = averages_.Mean(part, Averages::kWaiting) / 1000});
    }
  }

  const std::vector<TracePod>& pods_;
  const std::vector<Arrival> arrivals_;
  LoadedTrace loaded_;
  placement::Cluster& cluster_;
  const bool perform_moves_;
  FragmentationMeter meter_;
  const int64_t begin_;
  Averages averages_;
  int64_t now_ = begin_;
  std::unique_ptr<placement::Policy> policy_;
  std::unique_ptr<Mover> mover_;
  std::vector<uint32_t> queue_of_;  // by position of the pod in pods_
  std::vector<ShapeQueue> queues_;
  std::set<uint32_t> waiting_queues_;
  std::set<NodeId> freed_nodes_;                 // whose resources were freed since the last Retry
  std::vector<PodId> pod_ids_;                   // of running pods, by arrival
  std::unordered_map<PodId, uint32_t> running_;  // the arrival of each running pod
  std::priority_queue<PodEnd, std::vector<PodEnd>, std::greater<>> ends_;
  int64_t waiting_milli_ = 0;
  double started_milli_ = 0, weighted_waits_ = 0;
  TimelineResult result_;
};

Result<TimelineResult> RunOne(const std::vector<TraceNode>& nodes, const PodList& list,
                              const TimelineOptions& options, const std::string& policy,
                              uint64_t seed) {
  Random random(seed);
  ASSIGN_OR_RETURN(LoadedTrace loaded,
                   LoadTrace(nodes, list.pods, ShareResource::kCompute, random));
  Sample sample = options.as_recorded
                      ? AsRecorded(list.pods)
                      : SteadyLoad(list.pods, CapacityOf(nodes), options.load, random);
  return Timeline(list.pods, std::move(sample), std::move(loaded), options.moves).Run(policy, seed);
}

}  // namespace

Result<std::vector<TimelineResult>> RunTimelines(const std::vector<TraceNode>& nodes,
                                                 const PodList& list,
                                                 const TimelineOptions& options) {
  if (!list.has_times) {
    return Error(Code::kFailedPrecondition,
                 "the list of pods has no times: a timeline needs the columns creation_time and "
                 "deletion_time");
  }
  if (CapacityOf(nodes) == 0) return Error(Code::kInvalidArgument, "the nodes have no GPUs");
  if (PeakMilli(list.pods, AsRecorded(list.pods).arrivals) == 0) {
    return Error(Code::kInvalidArgument, "no pod of the list holds a GPU for a time above 0");
  }
  const size_t seeds = options.seeds.size();
  std::vector<std::optional<Result<TimelineResult>>> results(options.policies.size() * seeds);
  const auto run = [&](size_t i) {
    results[i] =
        RunOne(nodes, list, options, options.policies[i / seeds], options.seeds[i % seeds]);
  };
  RunJobs(results.size(), options.threads, run, options.progress);
  std::vector<TimelineResult> all;
  for (auto& result : results) {
    ASSIGN_OR_RETURN(TimelineResult timeline, std::move(*result));
    all.push_back(std::move(timeline));
  }
  return all;
}

}  // namespace tessera::replay
