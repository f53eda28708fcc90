// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/offers.h"

#include <algorithm>

#include "api/names.h"

namespace tessera::agent {
namespace {

using device::Dialect;

// Units on one GPU that pods of the resource's dialect hold, plus the units that still fit.
int64_t UsableUnits(const ShareUnits& units, const device::Gpu& gpu, const NodeUse& use) {
  const GpuUse all = use.accounts.UseOf(gpu.uuid);
  const GpuUse own = use.accounts.UseOfDialect(gpu.uuid, units.dialect);
  if (units.unit_memory == Bytes(0)) {
    const int64_t held = own.whole ? kWholeGpu.count() : own.compute.count();
    int64_t remaining = all.whole ? 0 : (kWholeGpu - all.compute).count();
    // A GPU of which a container holds memory cannot be allocated as a whole.
    if (!all.idle()) remaining = std::min(remaining, (kWholeGpu - device::kVcudaCore).count());
    return (held + std::max<int64_t>(remaining, 0)) / device::kVcudaCore.count();
  }
  if (all.whole) return 0;
  const int64_t remaining = std::max<int64_t>((gpu.memory - all.memory).count(), 0);
  const int64_t unit = units.unit_memory.count();
  return own.memory.count() / unit + remaining / unit;
}

std::vector<DeviceSet::Offer> SharedOffers(const ShareUnits& units, const DeviceSet& set,
                                           const NodeUse& use) {
  std::vector<DeviceSet::Offer> offers;
  offers.reserve(static_cast<size_t>(units.count()));
  std::vector<size_t> candidates, fallback_candidates;  // positions of IDs that may be withdrawn
  int64_t to_withdraw = 0;
  for (const ShareUnits::GpuUnits& gpu_units : units.gpus) {
    const device::Gpu* gpu = set.inventory().Find(gpu_units.uuid);
    const int64_t usable = std::min<int64_t>(UsableUnits(units, *gpu, use), gpu_units.count);
    const int64_t excess = gpu_units.healthy ? gpu_units.count - usable : 0;
    to_withdraw += excess;
    for (int number = 0; number < gpu_units.count; ++number) {
      offers.push_back({ShareUnits::IdOf(gpu_units, number), gpu_units.healthy, std::nullopt});
    }
    int64_t candidate_count = 0;
    for (size_t at = offers.size(); gpu_units.healthy && at > offers.size() - gpu_units.count;) {
      --at;
      if (use.allocated_ids.contains(offers[at].id)) continue;
      (candidate_count++ < excess ? candidates : fallback_candidates).push_back(at);
    }
  }
  candidates.insert(candidates.end(), fallback_candidates.begin(), fallback_candidates.end());
  for (const size_t at : candidates) {
    if (to_withdraw-- <= 0) break;
    offers[at].healthy = false;
  }
  return offers;
}

std::vector<DeviceSet::Offer> WholeOffers(const DeviceSet& set, const NodeUse& use) {
  std::vector<DeviceSet::Offer> offers = set.offers();
  int64_t to_withdraw = 0;
  std::vector<DeviceSet::Offer*> candidates, idle;
  for (DeviceSet::Offer& offer : offers) {
    if (!offer.healthy) continue;
    const bool is_held = !use.accounts.UseOf(offer.id).idle();
    const bool held_whole = use.accounts.UseOfDialect(offer.id, Dialect::kNvidiaGpu).whole;
    if (is_held && !held_whole) ++to_withdraw;
    if (!use.allocated_ids.contains(offer.id)) (is_held ? candidates : idle).push_back(&offer);
  }
  candidates.insert(candidates.end(), idle.begin(), idle.end());
  for (DeviceSet::Offer* offer : candidates) {
    if (to_withdraw-- <= 0) break;
    offer->healthy = false;
  }
  return offers;
}

}  // namespace

std::vector<DeviceSet::Offer> OffersOf(std::string_view resource, const DeviceSet& set,
                                       const NodeUse& use) {
  if (resource == names::kResourceGpu) return WholeOffers(set, use);
  const ShareUnits* units = set.shares().Find(resource);
  if (units == nullptr) return {};
  return SharedOffers(*units, set, use);
}

}  // namespace tessera::agent
