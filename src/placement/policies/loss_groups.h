// SPDX-License-Identifier: Apache-2.0
// Groups placements by what they cost future pods: the slots of large pods that they take, and the
// GPU model. If prices change, one number changes for each group instead of for each node.
//
// Threads: one. Included only in src/placement.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/placement/policies/forecast.h"

namespace tessera::placement {

class LossGroups {
 public:
  // With more groups than this, call Clear and rank all nodes again.
  static constexpr size_t kMaxGroups = 60000;

  uint16_t GroupOf(ModelId model, const SlotParts& lost);
  // The group of a placement on this model that takes no slot.
  uint16_t LosslessGroupOf(ModelId model);
  size_t size() const { return groups_.size(); }
  void Clear();

  // Call when the forecast's prices have changed.
  void OnPricesChanged() { priced_count_ = 0; }
  // What the demand costs in each group at the forecast's prices, as a score: 0 or negative.
  std::span<const float> Charges(const Forecast& forecast, const Demand& demand);
  // The price of the slots that a placement in this group takes.
  float ReservationOf(uint16_t group, const Forecast& forecast) const;
  ModelId ModelOf(uint16_t group) const { return groups_[group].model; }

 private:
  struct LossGroup {
    ModelId model;
    SlotParts lost;
    bool operator==(const LossGroup&) const = default;
  };
  struct Hash {
    size_t operator()(const LossGroup& group) const;
  };

  std::vector<LossGroup> groups_;
  std::unordered_map<LossGroup, uint16_t, Hash> ids_;
  std::vector<int32_t> lossless_;                 // by model; -1 for none
  std::vector<float> reservations_, scarcities_;  // by group
  size_t priced_count_ = 0;                       // groups with a current price
  std::vector<float> charges_;
};

}  // namespace tessera::placement
