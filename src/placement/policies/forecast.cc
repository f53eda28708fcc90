// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/forecast.h"

#include <algorithm>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>

#include "src/placement/fit.h"

namespace tessera::placement {
namespace {

// Sizes are rounded up to these, so that pods which differ by little are one class.
constexpr int64_t kCpuBand = 8000;
constexpr int64_t kMemoryBand = int64_t{32} << 30;
// Before anything was seen: in 50 pods, 3 want a whole node of the largest kind. It fades as pods
// arrive; without it the last empty node could go before the first large pod was seen.
constexpr double kPriorLarge = 3, kPriorPods = 50;
// Sets of models that pods name; more of them than any cluster has are not told apart.
constexpr size_t kMaxTyped = 64;
// Old arrivals fade over this many lives of a pod, and no faster than over so many departures.
constexpr double kLivesRemembered = 4, kLeastRemembered = 4096;

using NoPromotion = boost::math::policies::policy<boost::math::policies::promote_double<false>>;

// P(D >= places) when D is negative binomial: `seen` events in `exposure` arrivals, predicted over
// `horizon` arrivals. A Poisson rate that was learnt is uncertain; this tail knows it.
double ChanceOfAtLeast(double places, double seen, double exposure, double horizon) {
  if (places <= 0) return 1;
  if (seen <= 0 || horizon <= 0) return 0;
  return boost::math::ibeta(places, seen, horizon / (exposure + horizon), NoPromotion());
}

double NormalTail(double z) { return 0.5 * std::erfc(z * M_SQRT1_2); }

int64_t RoundUp(int64_t amount, int64_t band) {
  return amount / band * band + (amount % band == 0 ? 0 : band);
}

bool Within(const ModelSet& inner, const ModelSet& outer) {
  return outer.none() || (inner.any() && (inner & ~outer).none());
}

LargeSize SizeOf(const Demand& demand) {
  LargeSize size{.cpu_milli = RoundUp(demand.cpu_milli, kCpuBand),
                 .memory = RoundUp(demand.memory.count(), kMemoryBand),
                 .models = demand.models};
  for (const GpuAsk& ask : demand.asks) {
    if (ask.whole() && ask.kind == kWholeDevice) size.gpus += ask.count;
  }
  return size;
}

}  // namespace

int LargeSize::PlacesOf(const LargeSize& other) const {
  if (gpus < 2 || gpus < other.gpus || cpu_milli < other.cpu_milli || memory < other.memory ||
      !Within(models, other.models)) {
    return 0;
  }
  return gpus / other.gpus;
}

Forecast::Seen& Forecast::Look(ShapeId shape) {
  if (shape >= seen_.size()) seen_.resize(cluster_.shapes().size());
  Seen& seen = seen_[shape];
  const uint64_t serial = cluster_.shapes().serial(shape);
  if (seen.serial == serial) return seen;
  const Demand& demand = cluster_.demand(shape);
  seen = {};
  seen.serial = serial;
  seen.size = SizeOf(demand);
  seen.pod.cpu_milli = demand.cpu_milli;
  seen.pod.memory = demand.memory.count();
  seen.pod.models = demand.models;
  seen.pod.count = demand.gpus();
  if (seen.pod.count > 0) seen.pod.milli = static_cast<int>(demand.milli() / seen.pod.count);
  return seen;
}

// Null above kMaxClasses. A new class starts with what was seen before of its size and larger.
LargeClass* Forecast::ClassOf(const LargeSize& size, bool* is_new) {
  for (LargeClass& known : classes_) {
    if (known.size == size) return &known;
  }
  if (classes_.size() == kMaxClasses) return nullptr;
  LargeClass added{.size = size};
  for (const Seen& seen : seen_) {
    added.seen += seen.pod.weight * seen.size.PlacesOf(size);
  }
  classes_.push_back(added);
  *is_new = true;
  return &classes_.back();
}

bool Forecast::Arrived(ShapeId shape) {
  Seen& seen = Look(shape);
  const double milli = static_cast<double>(cluster_.demand(shape).milli());
  bool is_new = false;
  if (seen.size.gpus >= 2) (void)ClassOf(seen.size, &is_new);
  for (LargeClass& known : classes_) {
    // What serves the larger one is not there for the smaller.
    known.seen += unit_ * seen.size.PlacesOf(known.size);
  }
  arrivals_ += unit_;
  arrived_milli_ += unit_ * milli;
  seen.pod.weight += unit_;
  if (milli > 0 && seen.pod.models.any()) {
    const auto same = [&](const TypedDemand& typed) { return typed.models == seen.pod.models; };
    if (std::none_of(typed_.begin(), typed_.end(), same) && typed_.size() < kMaxTyped) {
      typed_.push_back({.models = seen.pod.models});
    }
    for (TypedDemand& typed : typed_) {
      if (!Within(seen.pod.models, typed.models)) continue;
      typed.milli += unit_ * milli;
      typed.square += unit_ * milli * milli;
    }
  }
  return is_new;
}

void Forecast::Departed(ShapeId shape) {
  const Seen& seen = Look(shape);
  departures_ += unit_;
  departed_milli_ += unit_ * static_cast<double>(cluster_.demand(shape).milli());
  for (LargeClass& known : classes_) {
    known.left += unit_ * seen.size.PlacesOf(known.size);
  }
  const double lives = kLivesRemembered * static_cast<double>(cluster_.pod_count());
  unit_ *= 1 + 1 / std::max(lives, kLeastRemembered);
  if (unit_ > 1e6) Fade();
}

// Everything in units of now; what weighs nothing any more is forgotten.
void Forecast::Fade() {
  for (Seen& seen : seen_) {
    seen.pod.weight /= unit_;
    if (seen.pod.weight < 1e-3) seen.pod.weight = 0;
  }
  for (LargeClass& known : classes_) {
    known.seen /= unit_;
    known.left /= unit_;
  }
  for (TypedDemand& typed : typed_) {
    typed.milli /= unit_;
    typed.square /= unit_;
  }
  for (double* sum : {&arrivals_, &arrived_milli_, &departures_, &departed_milli_}) *sum /= unit_;
  unit_ = 1;
}

bool Forecast::SawNode(const NodeView& node) {
  if (!node->present || node->gpu_count < largest_node_) return false;
  if (node->gpu_count > largest_node_) {
    largest_node_ = node->gpu_count;
    for (LargeClass& known : classes_) known.whole_node = false;
  }
  bool is_new = false;
  LargeClass* whole = ClassOf({.gpus = largest_node_,
                               .cpu_milli = node->cpu_total / kCpuBand * kCpuBand,
                               .memory = node->memory_total / kMemoryBand * kMemoryBand},
                              &is_new);
  if (whole != nullptr) whole->whole_node = true;
  return is_new;
}

std::vector<MixPod> Forecast::Mix() const {
  std::vector<MixPod> mix;
  for (const Seen& seen : seen_) {
    if (seen.pod.weight > 0) mix.push_back(seen.pod);
  }
  return mix;
}

Places Forecast::OwnPlaces(ShapeId shape) {
  const LargeSize size = Look(shape).size;
  Places own{};
  for (size_t j = 0; j < classes_.size(); ++j) {
    own[j] = static_cast<uint8_t>(size.PlacesOf(classes_[j].size));
  }
  return own;
}

uint8_t Forecast::PlacesOn(const NodeView& node, size_t of_class) const {
  const LargeSize& size = classes_[of_class].size;
  if (!node->present || !node->schedulable) return 0;
  int64_t idle = 0;
  for (const GpuState& gpu : node.gpus) {
    idle += gpu.slack == 1000 && size.Allows(gpu.model);
  }
  int64_t places = idle / size.gpus;
  if (places > 0 && size.cpu_milli > 0) {
    places = std::min(places, std::max<int64_t>(node->cpu_free, 0) / size.cpu_milli);
  }
  if (places > 0 && size.memory > 0) {
    places = std::min(places, std::max<int64_t>(node->memory_free, 0) / size.memory);
  }
  return static_cast<uint8_t>(places);
}

void Forecast::AddPlaces(const Places& places, int sign) {
  for (size_t j = 0; j < classes_.size(); ++j) classes_[j].places += sign * places[j];
}

void Forecast::AddSlack(ModelId model, int64_t milli) {
  if (model >= slack_.size()) slack_.resize(model + 1, 0);
  slack_[model] += milli;
}

// Arrivals until the cluster is full. Where pods leave, in no more arrivals than a life is long,
// which by Little's law is as many as there are pods: what comes later finds others gone.
double Forecast::Horizon() const {
  const double net = (arrived_milli_ - departed_milli_) / std::max(arrivals_, 1.0);
  const double until_full = static_cast<double>(cluster_.free_milli()) / std::max(net, 1.0);
  if (departures_ <= 0) return until_full;
  return std::min(until_full, static_cast<double>(cluster_.pod_count()));
}

void Forecast::Price() {
  const double horizon = arrivals_ > 0 ? Horizon() : 0;
  for (LargeClass& known : classes_) {
    const double freed = arrivals_ > 0 ? horizon * known.left / arrivals_ : 0;
    const double chance = ChanceOfAtLeast(static_cast<double>(known.places) + freed,
                                          known.seen + (known.whole_node ? kPriorLarge : 0),
                                          arrivals_ + (known.whole_node ? kPriorPods : 0), horizon);
    known.price = 1000.0 * known.size.gpus * chance;
  }
  scarcity_.assign(slack_.size(), 0);
  for (const TypedDemand& typed : typed_) {
    double free = 0;
    for (ModelId model = 0; model < slack_.size(); ++model) {
      if (typed.models.test(model)) free += static_cast<double>(slack_[model]);
    }
    const double mean = horizon * typed.milli / arrivals_;
    const double variance = horizon * typed.square / arrivals_ * (1 + horizon / arrivals_);
    const double chance = NormalTail((free - mean) / std::sqrt(std::max(variance, 1.0)));
    for (ModelId model = 0; model < slack_.size(); ++model) {
      if (typed.models.test(model)) scarcity_[model] = std::max(scarcity_[model], chance);
    }
  }
}

}  // namespace tessera::placement
