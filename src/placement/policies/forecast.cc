// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/forecast.h"

#include <algorithm>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>

#include "src/placement/fit.h"

namespace tessera::placement {
namespace {

// Sizes are rounded up to multiples of these, so that pods of almost equal size are in one class.
constexpr int64_t kCpuBandMilli = 8000;
constexpr int64_t kMemoryBandBytes = int64_t{32} << 30;
// The prior: 3 of 50 pods request a whole node of the largest size. Its weight shrinks as pods
// arrive. Without it small pods could take the last empty node before the first large pod arrives.
constexpr double kPriorLarge = 3, kPriorPods = 50;
// The most sets of models whose demand is counted. A new set replaces the set with the least
// demand.
constexpr size_t kMaxModelDemands = 64;
// The weight of an arrival fades over this many pod lifetimes, and over at least this many
// departures.
constexpr double kLifetimesRemembered = 4, kMinRemembered = 4096;

using NoPromotion = boost::math::policies::policy<boost::math::policies::promote_double<false>>;

// P(D >= slots) where D is negative binomial: `events` in `exposure` arrivals, predicted over
// `horizon` arrivals.
double ChanceOfAtLeast(double slots, double events, double exposure, double horizon) {
  if (slots <= 0) return 1;
  if (events <= 0 || horizon <= 0) return 0;
  return boost::math::ibeta(slots, events, horizon / (exposure + horizon), NoPromotion());
}

double NormalTail(double z) { return 0.5 * std::erfc(z * M_SQRT1_2); }

int64_t RoundUp(int64_t amount, int64_t band) {
  return amount / band * band + (amount % band == 0 ? 0 : band);
}

bool Within(const ModelSet& inner, const ModelSet& outer) {
  return outer.none() || (inner.any() && (inner & ~outer).none());
}

LargeSize SizeOf(const Demand& demand) {
  LargeSize size{.cpu_milli = RoundUp(demand.cpu_milli, kCpuBandMilli),
                 .memory = RoundUp(demand.memory.count(), kMemoryBandBytes),
                 .models = demand.models};
  for (const GpuDemand& gpu_demand : demand.gpu_demands) {
    if (gpu_demand.whole() && gpu_demand.kind == kNoMigProfile) size.gpus += gpu_demand.count;
  }
  return size;
}

}  // namespace

int LargeSize::SlotsOf(const LargeSize& other) const {
  if (gpus < 2 || gpus < other.gpus || cpu_milli < other.cpu_milli || memory < other.memory ||
      !Within(models, other.models)) {
    return 0;
  }
  return gpus / other.gpus;
}

Forecast::ShapeStats& Forecast::StatsOf(ShapeId shape) {
  if (shape >= shapes_.size()) shapes_.resize(cluster_.shapes().size());
  ShapeStats& stats = shapes_[shape];
  const uint64_t serial = cluster_.shapes().serial(shape);
  if (stats.serial == serial) return stats;
  const Demand& demand = cluster_.demand(shape);
  stats = {};
  stats.serial = serial;
  stats.size = SizeOf(demand);
  stats.pod.cpu_milli = demand.cpu_milli;
  stats.pod.memory = demand.memory.count();
  stats.pod.models = demand.models;
  stats.pod.count = demand.gpus();
  if (stats.pod.count == 0) return stats;
  stats.pod.milli = static_cast<int>(demand.milli() / stats.pod.count);
  for (const GpuDemand& gpu_demand : demand.gpu_demands)
    stats.pod.bytes += gpu_demand.count * gpu_demand.bytes.count();
  stats.pod.bytes /= stats.pod.count;
  return stats;
}

double LargeClass::demand() const { return arrived + (whole_node ? kPriorLarge : 0); }

// The class of this size; creates it with the past demand of its size and of larger sizes. Null if
// there is no space and each existing class has at least as much demand.
LargeClass* Forecast::ClassOf(const LargeSize& size) {
  const auto known =
      std::ranges::find_if(classes_, [&](const LargeClass& old) { return old.size == size; });
  if (known != classes_.end()) return &*known;
  LargeClass added{.size = size};
  for (const ShapeStats& stats : shapes_)
    added.arrived += stats.pod.weight * stats.size.SlotsOf(size);
  auto slot = classes_.end();
  if (classes_.size() < kMaxClasses) {
    slot = classes_.insert(slot, added);
  } else {
    slot = std::ranges::min_element(classes_, {}, &LargeClass::demand);
    if (slot->demand() >= added.demand()) return nullptr;
    *slot = added;
  }
  new_classes_ |= uint32_t{1} << (slot - classes_.begin());
  return &*slot;
}

void Forecast::OnArrival(ShapeId shape) {
  ShapeStats& stats = StatsOf(shape);
  const double milli = MeanMilli(cluster_.demand(shape));
  if (stats.size.gpus >= 2) (void)ClassOf(stats.size);
  for (LargeClass& large_class : classes_) {
    // SlotsOf is 0 for classes of larger pods: this pod leaves their demand unchanged.
    large_class.arrived += arrival_weight_ * stats.size.SlotsOf(large_class.size);
  }
  arrivals_ += arrival_weight_;
  arrived_milli_ += arrival_weight_ * milli;
  stats.pod.weight += arrival_weight_;
  if (milli > 0 && stats.pod.models.any()) CountModelDemand(stats.pod.models, milli);
}

void Forecast::CountModelDemand(const ModelSet& models, double milli) {
  if (std::ranges::find(model_demands_, models, &ModelDemand::models) == model_demands_.end()) {
    if (model_demands_.size() == kMaxModelDemands) {
      model_demands_.erase(std::ranges::min_element(model_demands_, {}, &ModelDemand::milli));
    }
    model_demands_.push_back({.models = models});
  }
  for (ModelDemand& demand : model_demands_) {
    if (!Within(models, demand.models)) continue;
    demand.milli += arrival_weight_ * milli;
    demand.milli_square += arrival_weight_ * milli * milli;
  }
}

void Forecast::OnDeparture(ShapeId shape) {
  const ShapeStats& stats = StatsOf(shape);
  departures_ += arrival_weight_;
  departed_milli_ += arrival_weight_ * MeanMilli(cluster_.demand(shape));
  for (LargeClass& large_class : classes_)
    large_class.departed += arrival_weight_ * stats.size.SlotsOf(large_class.size);
  const double lifetimes = kLifetimesRemembered * static_cast<double>(cluster_.pod_count());
  arrival_weight_ *= 1 + 1 / std::max(lifetimes, kMinRemembered);
  if (arrival_weight_ > 1e6) NormalizeWeights();
}

int64_t Forecast::MilliOn(const Demand& demand, ModelId model) const {
  const int64_t memory = model < device_memory_.size() ? device_memory_[model] : 0;
  int64_t sum = 0;
  for (const GpuDemand& gpu_demand : demand.gpu_demands) {
    const int milli = static_cast<int>(gpu_demand.milli.count());
    sum += gpu_demand.count *
           std::min(placement::MilliOn(memory, milli, gpu_demand.bytes.count()), 1000);
  }
  return sum;
}

// The mean of MilliOn over the GPUs of all allowed models.
double Forecast::MeanMilli(const Demand& demand) const {
  double sum = 0, gpus = 0;
  for (ModelId model = 0; model < capacity_.size(); ++model) {
    if (capacity_[model].gpus == 0 || !demand.AllowsModel(model)) continue;
    const auto count = static_cast<double>(capacity_[model].gpus);
    sum += count * static_cast<double>(MilliOn(demand, model));
    gpus += count;
  }
  return gpus > 0 ? sum / gpus : static_cast<double>(demand.milli());
}

// Rescales all weights to the present and drops shapes whose weight has vanished.
void Forecast::NormalizeWeights() {
  for (ShapeStats& stats : shapes_) {
    stats.pod.weight /= arrival_weight_;
    if (stats.pod.weight < 1e-3) stats.pod.weight = 0;
  }
  for (LargeClass& large_class : classes_) {
    large_class.arrived /= arrival_weight_;
    large_class.departed /= arrival_weight_;
  }
  for (ModelDemand& demand : model_demands_) {
    demand.milli /= arrival_weight_;
    demand.milli_square /= arrival_weight_;
  }
  for (double* sum : {&arrivals_, &arrived_milli_, &departures_, &departed_milli_})
    *sum /= arrival_weight_;
  arrival_weight_ = 1;
}

void Forecast::OnNodeChanged(const NodeView& node) {
  if (!node->present) return;
  device_memory_.resize(std::max(device_memory_.size(), cluster_.model_count()), 0);
  for (const GpuState& gpu : node.gpus) {
    if (gpu.kind != kNoMigProfile) continue;
    device_memory_[gpu.model] = std::max(device_memory_[gpu.model], gpu.total_bytes);
  }
  if (node->gpu_count < largest_node_gpus_) return;
  if (node->gpu_count > largest_node_gpus_) {
    largest_node_gpus_ = node->gpu_count;
    for (LargeClass& large_class : classes_) large_class.whole_node = false;
  }
  LargeClass* whole = ClassOf({.gpus = largest_node_gpus_,
                               .cpu_milli = node->cpu_total / kCpuBandMilli * kCpuBandMilli,
                               .memory = node->memory_total / kMemoryBandBytes * kMemoryBandBytes});
  if (whole != nullptr) whole->whole_node = true;
}

std::vector<MixPod> Forecast::Mix() const {
  std::vector<MixPod> mix;
  for (const ShapeStats& stats : shapes_) {
    if (stats.pod.weight > 0) mix.push_back(stats.pod);
  }
  return mix;
}

Slots Forecast::OwnSlots(ShapeId shape) {
  const LargeSize size = StatsOf(shape).size;
  Slots own{};
  for (size_t j = 0; j < classes_.size(); ++j) {
    own[j] = static_cast<uint8_t>(size.SlotsOf(classes_[j].size));
  }
  return own;
}

uint8_t Forecast::SlotsOn(const NodeView& node, size_t class_index) const {
  const LargeSize& size = classes_[class_index].size;
  if (!node->present || !node->schedulable) return 0;
  int64_t idle = 0;
  for (const GpuState& gpu : node.gpus) idle += gpu.slack == 1000 && size.Allows(gpu.model);
  int64_t slots = idle / size.gpus;
  if (slots > 0 && size.cpu_milli > 0) {
    slots = std::min(slots, std::max<int64_t>(node->cpu_free, 0) / size.cpu_milli);
  }
  if (slots > 0 && size.memory > 0) {
    slots = std::min(slots, std::max<int64_t>(node->memory_free, 0) / size.memory);
  }
  return static_cast<uint8_t>(slots);
}

void Forecast::AddGpu(ModelId model, int slack, int sign) {
  if (model >= capacity_.size()) capacity_.resize(model + 1);
  capacity_[model].gpus += sign;
  capacity_[model].slack += sign * slack;
}

// The horizon in arrivals: until no GPU has slack, but at most one pod lifetime, because pods that
// arrive later use the room of pods that have left. By Little's law, as many pods arrive in a pod
// lifetime as there are pods. A lifetime counts as at least kArrivalsPerPrice arrivals, because a
// price stays in use for that many.
double Forecast::Horizon() const {
  int64_t slack = 0;
  for (const ModelCapacity& model : capacity_) slack += model.slack;
  const double net = (arrived_milli_ - departed_milli_) / std::max(arrivals_, 1.0);
  const double until_full = static_cast<double>(slack) / std::max(net, 1.0);
  if (departures_ <= 0) return until_full;
  const auto pods = static_cast<double>(cluster_.pod_count());
  return std::min(until_full, std::max(pods, static_cast<double>(kArrivalsPerPrice)));
}

void Forecast::Price(const PolicyParts& excluded_parts) {
  const double horizon = arrivals_ > 0 ? Horizon() : 0;
  for (LargeClass& large_class : classes_) {
    const double freed = arrivals_ > 0 ? horizon * large_class.departed / arrivals_ : 0;
    const double chance =
        ChanceOfAtLeast(static_cast<double>(large_class.slots) + freed, large_class.demand(),
                        arrivals_ + (large_class.whole_node ? kPriorPods : 0), horizon);
    large_class.price =
        excluded_parts.test(kReservation) ? 0 : 1000.0 * large_class.size.gpus * chance;
  }
  scarcity_.assign(capacity_.size(), 0);
  if (excluded_parts.test(kScarcity)) return;
  for (const ModelDemand& demand : model_demands_) {
    double free = 0;
    for (ModelId model = 0; model < capacity_.size(); ++model) {
      if (demand.models.test(model)) free += static_cast<double>(capacity_[model].slack);
    }
    const double mean = horizon * demand.milli / arrivals_;
    const double variance = horizon * demand.milli_square / arrivals_ * (1 + horizon / arrivals_);
    const double chance = NormalTail((free - mean) / std::sqrt(std::max(variance, 1.0)));
    for (ModelId model = 0; model < capacity_.size(); ++model) {
      if (demand.models.test(model)) scarcity_[model] = std::max(scarcity_[model], chance);
    }
  }
}

}  // namespace tessera::placement
