// SPDX-License-Identifier: Apache-2.0
// Forecasts future demand, and prices capacity by it. It learns only from the pods that arrived and
// departed.
//
// It computes two prices, in thousandths of a GPU:
// - Reservation (Littlewood's rule): a class of large pods needs several whole GPUs, CPU and device
//   memory on one node; a slot is room for one such pod. With D the number of such pods within the
//   horizon and K the number of slots, a slot is worth 1000 · GPUs · P(D >= K). Classes are nested:
//   the demand of a class counts every larger pod (Hall's condition). As in a linear program, the
//   value of capacity is the sum over all constraints in which it occurs.
// - Scarcity: a pod that names GPU models can run only on these models. So every placement on such
//   a model costs the thousandths that it takes, times the chance that pods that name the model
//   will fill it.
//
// D follows a negative binomial distribution, the posterior predictive of a Poisson rate, so that a
// rate learned from few pods counts as uncertain. The horizon is the number of arrivals until the
// cluster is full, at most one pod lifetime if pods depart.
//
// Time is counted in arrivals; old arrivals weigh less. The caller reports the cluster's remaining
// slots and models. Threads: one. Included only in src/placement.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policies/waste_model.h"

namespace tessera::placement {

// A size of pods: at least `gpus` whole GPUs, `cpu_milli` and `memory`, on `models` only (none:
// any).
struct LargeSize {
  int gpus = 0;
  int64_t cpu_milli = 0;
  int64_t memory = 0;
  ModelSet models;

  bool operator==(const LargeSize&) const = default;
  // How many slots of size `other` a pod of this size takes: a pod of eight GPUs takes two slots of
  // four. 0 if this size is smaller than `other`.
  int SlotsOf(const LargeSize& other) const;
  bool Allows(ModelId model) const { return models.none() || models.test(model); }
};

struct LargeClass {
  LargeSize size;
  // Slots that arrivals of this size or of a larger size took.
  double arrived = 0;
  double departed = 0;      // slots that departures gave back
  bool whole_node = false;  // a pod fills a largest node; such pods are expected from the start
  int64_t slots = 0;        // how many pods of exactly this size fit now
  double price = 0;         // of one slot, in thousandths of a GPU

  double demand() const;  // `arrived`; with `whole_node` plus the prior (kPriorLarge)
};

// Bounds the classes that a tenant can create by requesting new sizes again and again: a class with
// more demand replaces the class with the least demand.
inline constexpr size_t kMaxClasses = 32;
using Slots = std::array<uint8_t, kMaxClasses>;  // by class
// Slots by class, in units of 1 / kPartsPerSlot.
inline constexpr int kPartsPerSlot = 64;
using SlotParts = std::array<uint16_t, kMaxClasses>;

// Prices are recomputed after this many arrivals.
inline constexpr int64_t kArrivalsPerPrice = 16;

class Forecast {
 public:
  explicit Forecast(const Cluster& cluster) : cluster_(cluster) {}

  void OnArrival(ShapeId shape);
  void OnDeparture(ShapeId shape);
  // Call for each new or changed node: pods that take a whole node of the largest size become a
  // class.
  void OnNodeChanged(const NodeView& node);
  // Returns the new classes and clears the list: bit j stands for class j, which may reuse the
  // index of a dropped class. The caller counts their slots on every node and adds them with
  // AddSlots.
  uint32_t TakeNewClasses() { return std::exchange(new_classes_, 0); }
  uint32_t new_classes() const { return new_classes_; }

  // Whether any pod has departed.
  bool pods_depart() const { return departures_ > 0; }
  // Mean demand of an arrival, in thousandths.
  double mean_milli() const { return arrivals_ > 0 ? arrived_milli_ / arrivals_ : 0; }
  // The mix of all arrivals, unordered.
  std::vector<MixPod> Mix() const;
  // Bytes of one GPU by model; 0 if no node has reported them.
  const std::vector<int64_t>& device_memory() const { return device_memory_; }

  std::span<const LargeClass> classes() const { return classes_; }
  // How many of the reserved slots of each class a pod of this shape may use, because they are
  // reserved for it.
  Slots OwnSlots(ShapeId shape);
  // How many pods of the class fit on the node now.
  uint8_t SlotsOn(const NodeView& node, size_t class_index) const;
  // Adds (sign 1) or removes (sign -1) slots of one node.
  void AddSlots(size_t class_index, int sign, uint8_t slots) {
    classes_[class_index].slots += sign * slots;
  }
  // Adds (sign 1) or removes (sign -1) one GPU of this model and slack.
  void AddGpu(ModelId model, int slack, int sign);

  // Sets the prices of slots and models for the current state.
  void Price(const PolicyParts& excluded_parts);
  // The chance that the pods limited to this model fill it.
  double scarcity(ModelId model) const { return model < scarcity_.size() ? scarcity_[model] : 0; }
  // Thousandths that the demand takes on GPUs of this model.
  int64_t MilliOn(const Demand& demand, ModelId model) const;

 private:
  struct ShapeStats {
    uint64_t serial = 0;  // of the shape; 0: unused
    MixPod pod;
    LargeSize size;
  };
  // Demand of pods that name GPU models.
  struct ModelDemand {
    ModelSet models;
    double milli = 0, milli_square = 0;  // sums over arrivals
  };
  struct ModelCapacity {
    int64_t gpus = 0, slack = 0;
  };

  ShapeStats& StatsOf(ShapeId shape);
  LargeClass* ClassOf(const LargeSize& size);
  void CountModelDemand(const ModelSet& models, double milli);
  double MeanMilli(const Demand& demand) const;
  void NormalizeWeights();
  double Horizon() const;

  const Cluster& cluster_;
  std::vector<ShapeStats> shapes_;  // by ShapeId
  double arrival_weight_ = 1;       // weight of an arrival now
  // Faded sums: events of long ago weigh less.
  double arrivals_ = 0, arrived_milli_ = 0;
  double departures_ = 0, departed_milli_ = 0;
  std::vector<LargeClass> classes_;
  uint32_t new_classes_ = 0;
  std::vector<ModelDemand> model_demands_;
  std::vector<int64_t> device_memory_;   // by model
  std::vector<ModelCapacity> capacity_;  // by model
  std::vector<double> scarcity_;         // by model
  int largest_node_gpus_ = 2;
};

}  // namespace tessera::placement
