// SPDX-License-Identifier: Apache-2.0
// MIG: the instances of a GPU. A GPU instance is placed on slices of memory, a compute instance on
// the compute slices of its GPU instance.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <string_view>

#include "src/sim/state_lock.h"

namespace tessera::sim {
namespace {

uint32_t MaskOf(uint32_t start, uint32_t size) { return ((1U << size) - 1) << start; }

// The slices of memory that GPU instances occupy.
uint32_t TakenMemorySlices(const GpuFacts& facts, const SimGpuState& gpu_state) {
  uint32_t taken = 0;
  for (const GpuInstance& instance : gpu_state.gpu_instances) {
    if (instance.present.load() == 0) continue;
    taken |= MaskOf(instance.start.load(), facts.mig_profiles[instance.profile.load()].size);
  }
  return taken;
}

uint32_t FreeStartsIn(const MigProfile& profile, uint32_t taken) {
  uint32_t starts = 0;
  for (uint32_t start = 0; start < 16; ++start) {
    const bool fits = (taken & MaskOf(start, profile.size)) == 0;
    if ((profile.starts >> start & 1) != 0 && fits) starts |= 1U << start;
  }
  return starts;
}

// The start in `starts` that leaves the most placements of all profiles free.
uint32_t BestStart(const GpuFacts& facts, const MigProfile& profile, uint32_t taken,
                   uint32_t starts) {
  uint32_t best = 0;
  int most = -1;
  for (uint32_t start = 0; start < 16; ++start) {
    if ((starts >> start & 1) == 0) continue;
    int free_placements = 0;
    for (const MigProfile& other : facts.mig_profiles) {
      free_placements += std::popcount(FreeStartsIn(other, taken | MaskOf(start, profile.size)));
    }
    if (free_placements > most) most = free_placements, best = start;
  }
  return best;
}

// The slices of compute of a GPU instance that its compute instances occupy.
uint32_t TakenComputeSlices(const SimGpuState& gpu_state, uint32_t gpu_instance) {
  uint32_t taken = 0;
  for (const ComputeInstance& other : gpu_state.compute_instances) {
    if (other.present.load() == 0 || other.gpu_instance.load() != gpu_instance) continue;
    taken |= MaskOf(other.start.load(), other.slices.load());
  }
  return taken;
}

// A compute instance begins at a multiple of its size, rounded up to a power of two.
uint32_t FreeComputeStartsIn(uint32_t all, uint32_t slices, uint32_t taken) {
  uint32_t starts = 0;
  for (uint32_t start = 0; start + slices <= all; start += std::bit_ceil(slices)) {
    if ((taken & MaskOf(start, slices)) == 0) starts |= 1U << start;
  }
  return starts;
}

// Like BestStart, for a compute instance in a GPU instance of `all` slices.
uint32_t BestComputeStart(uint32_t all, uint32_t slices, uint32_t taken, uint32_t starts) {
  uint32_t best = 0;
  int most = -1;
  for (uint32_t start = 0; start < all; ++start) {
    if ((starts >> start & 1) == 0) continue;
    int free_placements = 0;
    for (uint32_t other = 1; other <= all; ++other) {
      free_placements +=
          std::popcount(FreeComputeStartsIn(all, other, taken | MaskOf(start, slices)));
    }
    if (free_placements > most) most = free_placements, best = start;
  }
  return best;
}

// As with the real driver, the id of a GPU instance is its position in the tree of halves, quarters
// and eighths.
uint32_t GpuInstanceIdOf(const MigProfile& profile, uint32_t start) {
  if (profile.size >= 8) return 0;
  if (profile.size >= 4) return 1 + start / 4;
  return profile.size >= 2 ? 3 + start / 2 : 7 + start;
}

// Mixes 64 bits, so that UUIDs of similar inputs differ in all bits.
uint64_t Mix(uint64_t hash) {
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31);
}

uint64_t HashUuid(std::string_view gpu_uuid, uint64_t place) {
  uint64_t hash = 14695981039346656037U + place;
  for (const char c : gpu_uuid) hash = (hash ^ uint8_t(c)) * 1099511628211U;
  return Mix(hash);
}

// The lowest number that no present compute instance of the GPU instance has.
uint32_t FreeComputeId(const SimGpuState& gpu_state, uint32_t gpu_instance) {
  for (uint32_t id = 0;; ++id) {
    const auto has_id = [&](const ComputeInstance& other) {
      return other.present.load() != 0 && other.gpu_instance.load() == gpu_instance &&
             other.id.load() == id;
    };
    if (std::none_of(std::begin(gpu_state.compute_instances), std::end(gpu_state.compute_instances),
                     has_id)) {
      return id;
    }
  }
}

// The index of the first free entry; kMaxInstances: none.
template <typename Instance>
uint32_t FreeEntry(const Instance (&entries)[kMaxInstances]) {
  uint32_t index = 0;
  while (index < kMaxInstances && entries[index].present.load() != 0) ++index;
  return index;
}

template <typename Instance>
bool AnyPresent(const Instance (&entries)[kMaxInstances]) {
  return std::any_of(std::begin(entries), std::end(entries),
                     [](const Instance& entry) { return entry.present.load() != 0; });
}

}  // namespace

int State::SetMigMode(uint32_t gpu, bool on) {
  if (!writable_) return EROFS;
  const ByteLock lock(this, kMigByte + gpu);
  if (lock.error() != 0) return lock.error();
  SimGpuState& gpu_state = file_->gpu_states[gpu];
  gpu_state.mig_pending.store(on ? 1 : 0);
  if (on == IsMigEnabled(gpu)) return 0;
  if (AnyPresent(gpu_state.gpu_instances) || Processes(gpu, nullptr, 0) != 0) return EBUSY;
  gpu_state.mig_mode.store(on ? 1 : 0);
  return 0;
}

int State::ForceMigMode(uint32_t gpu, bool on) {
  if (!writable_) return EROFS;
  const ByteLock lock(this, kMigByte + gpu);
  if (lock.error() != 0) return lock.error();
  SimGpuState& gpu_state = file_->gpu_states[gpu];
  for (uint32_t i = 0; i < kMaxInstances; ++i) {
    if (gpu_state.compute_instances[i].present.load() != 0) RemoveComputeInstance(gpu, i);
  }
  for (uint32_t i = 0; i < kMaxInstances; ++i) {
    if (gpu_state.gpu_instances[i].present.load() != 0) RemoveGpuInstance(gpu, i);
  }
  gpu_state.mig_pending.store(on ? 1 : 0);
  gpu_state.mig_mode.store(on ? 1 : 0);
  return 0;
}

void State::RemoveComputeInstance(uint32_t gpu, uint32_t instance) {
  SimGpuState& gpu_state = file_->gpu_states[gpu];
  ComputeInstance& compute = gpu_state.compute_instances[instance];
  compute.present.store(0);
  const GpuInstance& parent = gpu_state.gpu_instances[compute.gpu_instance.load()];
  RemoveCapabilityFiles({facts(gpu).minor, parent.id.load(), int(compute.id.load())});
}

void State::RemoveGpuInstance(uint32_t gpu, uint32_t instance) {
  GpuInstance& removed = file_->gpu_states[gpu].gpu_instances[instance];
  removed.present.store(0);
  RemoveCapabilityFiles({facts(gpu).minor, removed.id.load()});
}

uint32_t State::FreeStarts(uint32_t gpu, uint32_t profile) const {
  const GpuFacts& facts = file_->facts[gpu];
  const SimGpuState& gpu_state = file_->gpu_states[gpu];
  uint32_t same = 0;
  for (const GpuInstance& other : gpu_state.gpu_instances) {
    if (other.present.load() != 0 && other.profile.load() == profile) ++same;
  }
  const MigProfile& wanted = facts.mig_profiles[profile];
  return same >= wanted.instances ? 0 : FreeStartsIn(wanted, TakenMemorySlices(facts, gpu_state));
}

int State::CreateGpuInstance(uint32_t gpu, uint32_t profile, uint32_t start, uint32_t* instance) {
  if (!writable_) return EROFS;
  const ByteLock lock(this, kMigByte + gpu);
  if (lock.error() != 0) return lock.error();
  if (!IsMigEnabled(gpu) || profile >= kMaxMigProfiles) return EINVAL;
  const GpuFacts& facts = file_->facts[gpu];
  const MigProfile& wanted = facts.mig_profiles[profile];
  if (wanted.size == 0) return EINVAL;
  if (start != kAnyStart && (start >= 16 || (wanted.starts >> start & 1) == 0)) return EINVAL;
  SimGpuState& gpu_state = file_->gpu_states[gpu];
  const uint32_t starts = FreeStarts(gpu, profile);
  const uint32_t entry = FreeEntry(gpu_state.gpu_instances);
  if (starts == 0 || entry == kMaxInstances) return ENOSPC;
  if (start == kAnyStart)
    start = BestStart(facts, wanted, TakenMemorySlices(facts, gpu_state), starts);
  if ((starts >> start & 1) == 0) return ENOSPC;
  GpuInstance& created = gpu_state.gpu_instances[entry];
  created.profile.store(profile);
  created.start.store(start);
  created.id.store(GpuInstanceIdOf(wanted, start));
  CreateCapabilityFiles({facts.minor, created.id.load()});
  created.present.store(1);
  *instance = entry;
  return 0;
}

int State::DestroyGpuInstance(uint32_t gpu, uint32_t instance) {
  if (!writable_) return EROFS;
  const ByteLock lock(this, kMigByte + gpu);
  if (lock.error() != 0) return lock.error();
  SimGpuState& gpu_state = file_->gpu_states[gpu];
  if (gpu_state.gpu_instances[instance].present.load() == 0) return EINVAL;
  for (const ComputeInstance& compute : gpu_state.compute_instances) {
    if (compute.present.load() != 0 && compute.gpu_instance.load() == instance) return EBUSY;
  }
  RemoveGpuInstance(gpu, instance);
  return 0;
}

uint32_t State::FreeComputeStarts(uint32_t gpu, uint32_t gpu_instance, uint32_t slices) const {
  const uint32_t all = ProfileOf(gpu, gpu_instance).slices;
  return FreeComputeStartsIn(all, slices, TakenComputeSlices(file_->gpu_states[gpu], gpu_instance));
}

int State::CreateComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t slices,
                                 uint32_t start, uint32_t* instance) {
  if (!writable_) return EROFS;
  const ByteLock lock(this, kMigByte + gpu);
  if (lock.error() != 0) return lock.error();
  SimGpuState& gpu_state = file_->gpu_states[gpu];
  const GpuInstance& parent = gpu_state.gpu_instances[gpu_instance];
  if (parent.present.load() == 0 || slices == 0) return EINVAL;
  const uint32_t starts = FreeComputeStarts(gpu, gpu_instance, slices);
  const uint32_t entry = FreeEntry(gpu_state.compute_instances);
  if (starts == 0 || entry == kMaxInstances) return ENOSPC;
  if (start == kAnyStart) {
    const uint32_t all = ProfileOf(gpu, gpu_instance).slices;
    start = BestComputeStart(all, slices, TakenComputeSlices(gpu_state, gpu_instance), starts);
  }
  if (start >= 16 || (starts >> start & 1) == 0) return ENOSPC;
  ComputeInstance& created = gpu_state.compute_instances[entry];
  const uint32_t id = FreeComputeId(gpu_state, gpu_instance);
  const uint64_t place = uint64_t(parent.id.load()) * kMaxInstances + id;
  created.gpu_instance.store(gpu_instance);
  created.id.store(id);
  created.start.store(start);
  created.slices.store(slices);
  created.uuid_high.store(HashUuid(facts(gpu).uuid, place * 2));
  created.uuid_low.store(HashUuid(facts(gpu).uuid, place * 2 + 1));
  CreateCapabilityFiles({facts(gpu).minor, parent.id.load(), int(id)});
  created.present.store(1);
  *instance = entry;
  return 0;
}

bool State::IsUsed(uint32_t gpu, uint32_t compute_instance) {
  const uint32_t used = std::min(file_->slots_end.load(), kMaxSlots);
  for (uint32_t i = 0; i < used; ++i) {
    const SlotRecord& slot = file_->slots[i];
    const SlotGpu& on_gpu = slot.gpus[gpu];
    if (slot.claim_id.load() == 0 || on_gpu.instance_plus_1.load() != compute_instance + 1)
      continue;
    if ((on_gpu.bytes.load() != 0 || on_gpu.contexts.load() != 0) && HolderOf(i) >= 0) return true;
  }
  return false;
}

int State::DestroyComputeInstance(uint32_t gpu, uint32_t instance) {
  if (!writable_) return EROFS;
  const ByteLock lock(this, kMigByte + gpu);
  if (lock.error() != 0) return lock.error();
  if (file_->gpu_states[gpu].compute_instances[instance].present.load() == 0) return EINVAL;
  if (IsUsed(gpu, instance)) return EBUSY;
  RemoveComputeInstance(gpu, instance);
  return 0;
}

uint32_t State::MultiprocessorsOf(uint32_t gpu, uint32_t gpu_instance, uint32_t slices) const {
  const MigProfile& profile = ProfileOf(gpu, gpu_instance);
  if (slices >= profile.slices) return profile.sm_count;
  // A slice has as many multiprocessors as the smallest profile; larger profiles may have more.
  uint32_t per_slice = profile.sm_count / profile.slices;
  for (const MigProfile& other : facts(gpu).mig_profiles) {
    if (other.slices == 1) per_slice = std::min(per_slice, other.sm_count);
  }
  return per_slice * slices;
}

std::string State::InstanceUuid(uint32_t gpu, uint32_t compute_instance) const {
  const ComputeInstance& compute = file_->gpu_states[gpu].compute_instances[compute_instance];
  const uint64_t high = compute.uuid_high.load(), low = compute.uuid_low.load();
  char text[48];
  // Version 5, which the driver's UUIDs of instances have.
  snprintf(text, sizeof(text), "MIG-%08x-%04x-5%03x-%04x-%012llx", uint32_t(high >> 32),
           uint32_t(high >> 16 & 0xFFFF), uint32_t(high & 0xFFF),
           uint32_t(low >> 48 & 0x3FFF) | 0x8000,
           static_cast<unsigned long long>(low & 0xFFFFFFFFFFFF));
  return text;
}

std::string State::InstanceProfile(uint32_t gpu, uint32_t compute_instance) const {
  const ComputeInstance& compute = file_->gpu_states[gpu].compute_instances[compute_instance];
  const MigProfile& profile = ProfileOf(gpu, compute.gpu_instance.load());
  const uint32_t slices = compute.slices.load();
  return (slices < profile.slices ? std::to_string(slices) + "c." : "") + profile.name;
}

uint32_t State::InstanceByRank(uint32_t gpu, uint32_t rank, InstanceFilter filter) const {
  const SimGpuState& gpu_state = file_->gpu_states[gpu];
  bool is_counted[kMaxInstances];
  for (uint32_t i = 0; i < kMaxInstances; ++i) {
    is_counted[i] = gpu_state.compute_instances[i].present.load() != 0 &&
                    (filter == InstanceFilter::kAll || MayUse(gpu, i));
  }
  const auto key = [&](uint32_t index) {
    const ComputeInstance& compute = gpu_state.compute_instances[index];
    return gpu_state.gpu_instances[compute.gpu_instance.load()].id.load() * kMaxInstances +
           compute.id.load();
  };
  for (uint32_t index = 0; index < kMaxInstances; ++index) {
    if (!is_counted[index]) continue;
    uint32_t before = 0;
    for (uint32_t other = 0; other < kMaxInstances; ++other) {
      if (is_counted[other] && key(other) < key(index)) ++before;
    }
    if (before == rank) return index;
  }
  return kMaxInstances;
}

}  // namespace tessera::sim
