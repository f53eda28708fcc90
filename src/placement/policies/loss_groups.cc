// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/loss_groups.h"

#include <algorithm>
#include <cstring>

namespace tessera::placement {

size_t LossGroups::Hash::operator()(const LossGroup& group) const {
  constexpr size_t kPerWord = sizeof(uint64_t) / sizeof(SlotParts::value_type);
  static_assert(kMaxClasses % kPerWord == 0);
  uint64_t hash = group.model, word;
  for (size_t i = 0; i < kMaxClasses; i += kPerWord) {
    std::memcpy(&word, group.lost.data() + i, sizeof word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

uint16_t LossGroups::GroupOf(ModelId model, const SlotParts& lost) {
  const auto [at, is_new] =
      ids_.try_emplace(LossGroup{model, lost}, static_cast<uint16_t>(groups_.size()));
  if (is_new) groups_.push_back(at->first);
  return at->second;
}

uint16_t LossGroups::LosslessGroupOf(ModelId model) {
  if (model >= lossless_.size()) lossless_.resize(model + 1, -1);
  if (lossless_[model] < 0) lossless_[model] = GroupOf(model, SlotParts{});
  return static_cast<uint16_t>(lossless_[model]);
}

void LossGroups::Clear() {
  groups_.clear();
  ids_.clear();
  lossless_.clear();
  priced_count_ = 0;
}

float LossGroups::ReservationOf(uint16_t group, const Forecast& forecast) const {
  const auto classes = forecast.classes();
  double sum = 0;
  for (size_t j = 0; j < classes.size(); ++j) sum += classes[j].price * groups_[group].lost[j];
  return static_cast<float>(sum / kPartsPerSlot);
}

std::span<const float> LossGroups::Charges(const Forecast& forecast, const Demand& demand) {
  reservations_.resize(groups_.size());
  scarcities_.resize(groups_.size());
  for (; priced_count_ < groups_.size(); ++priced_count_) {
    reservations_[priced_count_] = ReservationOf(static_cast<uint16_t>(priced_count_), forecast);
    scarcities_[priced_count_] =
        static_cast<float>(forecast.scarcity(groups_[priced_count_].model));
  }
  // The result has an entry for group 0 even if there are no groups, because nodes where the demand
  // does not fit have group 0.
  charges_.assign(groups_.size() + 1, 0);
  for (size_t i = 0; i < groups_.size(); ++i) {
    charges_[i] = -reservations_[i];
    if (scarcities_[i] == 0) continue;
    charges_[i] -= scarcities_[i] * static_cast<float>(forecast.MilliOn(demand, groups_[i].model));
  }
  return charges_;
}

}  // namespace tessera::placement
