// SPDX-License-Identifier: Apache-2.0
// What is still to come, and what it makes places worth: learnt from the pods that arrived and
// left, and from nothing else.
//
// Two prices follow from it, in thousandths of a GPU.
// - Reservation (Littlewood's rule): a class of large pods needs several whole GPUs, CPU and memory
// on
//   one node. A place that could hold one more of them costs what such a pod would use, times the
//   chance that more of them come than there are places.
// - Scarce models: pods that name models can go nowhere else. Everything placed on such a model
// costs
//   its own size, times the chance that they will fill it.
//
// Time is counted in arrivals; what has left weighs less the longer ago it came. The caller says
// what places and models the cluster has left. Threads: one. Private to this room.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
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
  // How many places for pods of size `other` a pod of this size takes: one of eight GPUs takes two
  // of four. None where it is smaller.
  int PlacesOf(const LargeSize& other) const;
  bool Allows(ModelId model) const { return models.none() || models.test(model); }
};

struct LargeClass {
  LargeSize size;
  // Places that arrivals of this size or larger took: a pod of eight GPUs takes two of four.
  double seen = 0;
  double left = 0;          // that departures gave back
  bool whole_node = false;  // the size of a largest node: expected before one was seen
  int64_t places = 0;       // how many pods of exactly this size would fit now
  double price = 0;         // of one place
};

// Bounds what a tenant can make us count by asking for ever new sizes; later ones are not
// protected.
inline constexpr size_t kMaxClasses = 32;
using Places = std::array<uint8_t, kMaxClasses>;  // by class
// The same in parts of a place.
inline constexpr int kPartsPerPlace = 64;
using PlaceParts = std::array<uint16_t, kMaxClasses>;

class Forecast {
 public:
  explicit Forecast(const Cluster& cluster) : cluster_(cluster) {}

  // True when there is a class that was not there before: count its places.
  bool Arrived(ShapeId shape);
  void Departed(ShapeId shape);
  // The same for the size of a node with more GPUs than any before, or as many.
  bool SawNode(const NodeView& node);

  // The mix of what arrived, in no order.
  std::vector<MixPod> Mix() const;

  std::span<const LargeClass> classes() const { return classes_; }
  // Of how many places of each class a pod of this shape is itself what they are kept for: taking
  // those is no loss to others.
  Places OwnPlaces(ShapeId shape);
  // How many pods of the class would fit the node as it is.
  uint8_t PlacesOn(const NodeView& node, size_t of_class) const;

  // What a node adds to, or takes from, the places of all classes and the slack of a model.
  void AddPlaces(const Places& places, int sign);
  void AddSlack(ModelId model, int64_t milli);

  // Prices for places and models as they are now.
  void Price();
  // The chance that pods which must use this model fill it.
  double scarcity(ModelId model) const { return model < scarcity_.size() ? scarcity_[model] : 0; }

 private:
  struct Seen {
    uint64_t serial = 0;  // of the shape; 0 for none
    MixPod pod;
    LargeSize size;
  };
  struct TypedDemand {
    ModelSet models;
    double milli = 0, square = 0;  // sums over arrivals
  };

  Seen& Look(ShapeId shape);
  LargeClass* ClassOf(const LargeSize& size, bool* is_new);
  void Fade();
  double Horizon() const;

  const Cluster& cluster_;
  std::vector<Seen> seen_;  // by ShapeId
  double unit_ = 1;         // what an arrival weighs now
  // What is long gone weighs less.
  double arrivals_ = 0, arrived_milli_ = 0;
  double departures_ = 0, departed_milli_ = 0;
  std::vector<LargeClass> classes_;
  std::vector<TypedDemand> typed_;
  std::vector<int64_t> slack_;    // by model
  std::vector<double> scarcity_;  // by model
  int largest_node_ = 2;          // GPUs
};

}  // namespace tessera::placement
