// SPDX-License-Identifier: Apache-2.0
// The slot of a process in the state: claims, and charges of memory.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "src/sim/state_lock.h"

namespace tessera::sim {

uint64_t State::UsedBytesAtOnce(uint32_t gpu) {
  const ByteLock lock(this, kChargeByte + gpu);
  return SumBytes(gpu, /*only_live=*/true);
}

int ProcessSlot::Claim(State* state) {
  if (!state->writable()) return EROFS;
  const int fd = state->slots_fd_;
  StateFile& file = state->file();
  uint64_t owner = 0;
  if (getrandom(&owner, sizeof(owner), GRND_NONBLOCK) != sizeof(owner)) owner = MonotonicNs();
  owner |= 1;

  State::ByteLock claim(state, kClaimByte);
  if (claim.error() != 0) return claim.error();
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    Slot& slot = file.slots[i];
    // Only a claimer locks a slot, and the claim byte is held, so a free slot stays free.
    if (slot.owner.load() != 0 && state->HolderOf(i) >= 0) continue;
    slot.owner.store(0);
    memset(slot.name, 0, sizeof(slot.name));
    for (SlotGpu& gpu : slot.gpus) {
      gpu.bytes.store(0);
      gpu.contexts.store(0);
      gpu.instance.store(0);
      gpu.wanted_ns.store(0);
      gpu.given_ns.store(0);
      gpu.turn_count.store(0);
      gpu.turns_read.store(0);
      for (UseSample& sample : gpu.samples) sample.index.store(0);
    }
    if (const int error = SetLock(fd, i, F_WRLCK, /*wait=*/false); error != 0) {
      if (error == EAGAIN || error == EACCES) continue;
      return error;
    }
    strncpy(slot.name, program_invocation_short_name, sizeof(slot.name) - 1);
    slot.start_ns.store(MonotonicNs());
    if (file.slots_used.load() <= i) file.slots_used.store(i + 1);
    slot.owner.store(owner);
    state_ = state;
    index_ = i;
    owner_ = owner;
    pid_ = getpid();
    return 0;
  }
  return EAGAIN;
}

Slot& ProcessSlot::slot() const { return state_->file().slots[index_]; }

bool ProcessSlot::mine() const {
  return state_ != nullptr && pid_ == getpid() && slot().owner.load() == owner_;
}

void ProcessSlot::Release() {
  if (mine()) {
    slot().owner.store(0);
    SetLock(state_->slots_fd_, index_, F_UNLCK, /*wait=*/false);
  }
  state_ = nullptr;
}

int ProcessSlot::Charge(uint32_t gpu, uint64_t bytes) {
  if (!mine()) return ESTALE;
  const GpuFacts& facts = state_->facts(gpu);
  uint64_t capacity = facts.memory_bytes - facts.reserved_bytes;
  uint32_t part = State::kWholeGpu;
  if (const uint32_t instance = slot().gpus[gpu].instance.load(); instance != 0) {
    part = state_->live(gpu).compute_instances[instance - 1].gpu_instance.load();
    capacity = state_->ProfileOf(gpu, part).memory_bytes;
  }
  if (bytes > capacity) return ENOMEM;
  State::ByteLock lock(state_, kChargeByte + gpu);
  if (lock.error() != 0) return lock.error();
  // Bytes of dead processes only matter if the GPU seems full: a check costs system calls.
  if (state_->SumBytes(gpu, /*only_live=*/false, part) + bytes > capacity &&
      state_->SumBytes(gpu, /*only_live=*/true, part) + bytes > capacity) {
    return ENOMEM;
  }
  slot().gpus[gpu].bytes.fetch_add(bytes);
  return 0;
}

void ProcessSlot::UseInstance(uint32_t gpu, uint32_t compute_instance) {
  if (mine()) slot().gpus[gpu].instance.store(compute_instance + 1);
}

void ProcessSlot::Uncharge(uint32_t gpu, uint64_t bytes) {
  if (mine()) slot().gpus[gpu].bytes.fetch_sub(bytes);
}

void ProcessSlot::AddContexts(uint32_t gpu, int delta) {
  if (mine()) slot().gpus[gpu].contexts.fetch_add(uint32_t(delta));
}

}  // namespace tessera::sim
