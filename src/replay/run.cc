// SPDX-License-Identifier: Apache-2.0
#include "src/replay/run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "src/replay/fragmentation_meter.h"

namespace tessera::replay {
namespace {

class Runner {
 public:
  Runner(const std::vector<TracePod>& pods, const RunOptions& options, const Clock& clock,
         LoadedTrace loaded)
      : pods_(pods),
        options_(options),
        clock_(clock),
        loaded_(std::move(loaded)),
        capacity_(loaded_.cluster->total_milli()) {
    if (options.fragmentation) meter_.emplace(*loaded_.cluster, loaded_.mix);
    result_.policy = options.policy;
    result_.seed = options.seed;
  }

  Result<RunResult> Run(const std::vector<uint32_t>& arrivals) {
    const placement::PolicyOptions policy_options{.seed = options_.seed, .mix = loaded_.mix};
    ASSIGN_OR_RETURN(policy_,
                     placement::MakePolicy(options_.policy, *loaded_.cluster, policy_options));
    AddPoint(0);
    int64_t arrived = 0;
    int next = 1;
    for (const uint32_t i : arrivals) {
      RETURN_IF_ERROR(Arrive(i));
      arrived += pods_[i].milli();
      // If one pod raises the load by several percent, these points have the same state. The last
      // point is added after the last pod.
      for (; next < options_.load && arrived * 100 >= capacity_ * next; ++next) AddPoint(next);
    }
    // The last load counts as reached if less than half a percent is missing.
    if (arrived * 200 >= capacity_ * (2 * next - 1)) AddPoint(next);
    return std::move(result_);
  }

 private:
  static constexpr int64_t kOnePod = 1000;  // added to refused_milli_ for a pod without GPUs

  Status Arrive(uint32_t i) {
    const TracePod& pod = pods_[i];
    ASSIGN_OR_RETURN(const bool placed, Decide(loaded_.demands[i]));
    if (placed) {
      allocated_milli_ += pod.milli();
    } else {
      refused_milli_[static_cast<size_t>(SizeOf(pod))] += pod.gpus > 0 ? pod.milli() : kOnePod;
    }
    return {};
  }

  Result<bool> Decide(const std::optional<placement::Demand>& demand) {
    if (!demand) return false;
    ASSIGN_OR_RETURN(const placement::ShapeId shape, loaded_.cluster->Intern(*demand));
    const MonotonicTime arrived = clock_.Now();
    policy_->OnArrival(shape);
    const MonotonicTime began = clock_.Now();
    result_.learning_time += began - arrived;
    const auto decision = policy_->Choose(shape);
    const MonotonicTime decided = clock_.Now();
    result_.decision_time += decided - began;
    if (options_.keep_latencies) {
      result_.decision_ns.push_back(
          static_cast<uint32_t>(std::min<int64_t>((decided - began).count(), UINT32_MAX)));
    }
    if (decision) {
      ASSIGN_OR_RETURN([[maybe_unused]] const placement::PodId pod,
                       loaded_.cluster->Place(shape, decision->node, decision->pick));
      if (meter_) meter_->Update(decision->node);
    }
    return decision.has_value();
  }

  void AddPoint(int load) {
    const double capacity = static_cast<double>(capacity_);
    const double idle = static_cast<double>(capacity_ - allocated_milli_);
    LoadPoint point{.load = load, .allocation = 100 * (1 - idle / capacity)};
    if (meter_) {
      point.fragmentation = 100 * meter_->total() / capacity;
      point.idle_fragmented = idle > 0 ? 100 * meter_->total() / idle : 0;
    }
    for (size_t n = 0; n < kPodSizes; ++n)
      point.refused[n] = static_cast<double>(refused_milli_[n]) / 1000;
    result_.points.push_back(point);
  }

  const std::vector<TracePod>& pods_;
  const RunOptions& options_;
  const Clock& clock_;
  LoadedTrace loaded_;
  const int64_t capacity_;
  std::optional<FragmentationMeter> meter_;
  std::unique_ptr<placement::Policy> policy_;
  int64_t allocated_milli_ = 0;
  std::array<int64_t, kPodSizes> refused_milli_{};
  RunResult result_;
};

}  // namespace

PodSize SizeOf(const TracePod& pod) {
  if (pod.gpus == 1 && pod.per_gpu < kWholeGpu) return PodSize::kShare;
  return placement::PodSizeOf(pod.gpus);
}

Result<RunResult> Run(const std::vector<TraceNode>& nodes, const std::vector<TracePod>& pods,
                      const RunOptions& options, const Clock& clock) {
  const int64_t capacity = CapacityOf(nodes);
  if (capacity == 0) return Error(Code::kInvalidArgument, "the nodes have no GPUs");
  Random random(options.seed);
  const std::vector<uint32_t> arrivals = Arrivals(pods, capacity, options.load, random);
  ASSIGN_OR_RETURN(LoadedTrace loaded, LoadTrace(nodes, pods, options.share_resource, random));
  return Runner(pods, options, clock, std::move(loaded)).Run(arrivals);
}

}  // namespace tessera::replay
