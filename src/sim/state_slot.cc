// SPDX-License-Identifier: Apache-2.0
// The slot of a process in the state: claims, and charges of memory.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "src/sim/state_lock.h"

namespace tessera::sim {

uint64_t State::UsedBytesConsistent(uint32_t gpu) {
  const ByteLock lock(this, kChargeByte + gpu);
  return SumBytes(gpu, /*only_live=*/true);
}

int ProcessSlot::Claim(State* state) {
  if (!state->writable()) return EROFS;
  const int fd = state->slots_fd_;
  StateFile& file = state->file();
  uint64_t claim_id = 0;
  if (getrandom(&claim_id, sizeof(claim_id), GRND_NONBLOCK) != sizeof(claim_id))
    claim_id = MonotonicNs();
  claim_id |= 1;

  State::ByteLock claim(state, kClaimByte);
  if (claim.error() != 0) return claim.error();
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    SlotRecord& slot = file.slots[i];
    // Only a claimer locks a slot, and the claim byte is held, so a free slot stays free.
    if (slot.claim_id.load() != 0 && state->HolderOf(i) >= 0) continue;
    slot.claim_id.store(0);
    memset(slot.name, 0, sizeof(slot.name));
    for (SlotGpu& gpu : slot.gpus) {
      gpu.bytes.store(0);
      gpu.contexts.store(0);
      gpu.instance_plus_1.store(0);
      gpu.requested_ns.store(0);
      gpu.turns_ns.store(0);
      gpu.turn_count.store(0);
      gpu.turns_consumed.store(0);
      for (ProcessTimeSample& sample : gpu.samples) sample.index.store(0);
    }
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
      const uint32_t shared = file.shared_end[gpu].load();
      for (uint32_t k = 0; k < shared; ++k) {
        file.shared[gpu][k].holders[i / 64].fetch_and(~(uint64_t(1) << i % 64));
      }
    }
    if (const int error = SetLock(fd, i, F_WRLCK, /*wait=*/false); error != 0) {
      if (error == EAGAIN || error == EACCES) continue;
      return error;
    }
    strncpy(slot.name, program_invocation_short_name, sizeof(slot.name) - 1);
    slot.start_ns.store(MonotonicNs());
    if (file.slots_end.load() <= i) file.slots_end.store(i + 1);
    slot.claim_id.store(claim_id);
    state_ = state;
    index_ = i;
    claim_id_ = claim_id;
    pid_ = getpid();
    return 0;
  }
  return EAGAIN;
}

SlotRecord& ProcessSlot::slot() const { return state_->file().slots[index_]; }

bool ProcessSlot::IsOwned() const {
  return state_ != nullptr && pid_ == getpid() && slot().claim_id.load() == claim_id_;
}

void ProcessSlot::Release() {
  if (IsOwned()) {
    slot().claim_id.store(0);
    SetLock(state_->slots_fd_, index_, F_UNLCK, /*wait=*/false);
  }
  state_ = nullptr;
}

uint32_t ProcessSlot::GpuInstanceOf(uint32_t gpu) const {
  const uint32_t instance = slot().gpus[gpu].instance_plus_1.load();
  if (instance == 0) return State::kWholeGpu;
  return state_->gpu_state(gpu).compute_instances[instance - 1].gpu_instance.load();
}

// The first sum includes dead processes. If it exceeds the capacity, the second sum checks which
// processes live, at the cost of a system call for each.
bool ProcessSlot::HasRoom(uint32_t gpu, uint64_t bytes) const {
  const GpuFacts& facts = state_->facts(gpu);
  const uint32_t gpu_instance = GpuInstanceOf(gpu);
  const uint64_t capacity = gpu_instance == State::kWholeGpu
                                ? facts.memory_bytes - facts.reserved_bytes
                                : state_->ProfileOf(gpu, gpu_instance).memory_bytes;
  if (bytes > capacity) return false;
  return state_->SumBytes(gpu, /*only_live=*/false, gpu_instance) + bytes <= capacity ||
         state_->SumBytes(gpu, /*only_live=*/true, gpu_instance) + bytes <= capacity;
}

int ProcessSlot::Charge(uint32_t gpu, uint64_t bytes) {
  if (!IsOwned()) return ESTALE;
  State::ByteLock lock(state_, kChargeByte + gpu);
  if (lock.error() != 0) return lock.error();
  if (!HasRoom(gpu, bytes)) return ENOMEM;
  slot().gpus[gpu].bytes.fetch_add(bytes);
  return 0;
}

void ProcessSlot::UseInstance(uint32_t gpu, uint32_t compute_instance) {
  if (IsOwned()) slot().gpus[gpu].instance_plus_1.store(compute_instance + 1);
}

void ProcessSlot::Uncharge(uint32_t gpu, uint64_t bytes) {
  if (IsOwned()) slot().gpus[gpu].bytes.fetch_sub(bytes);
}

void ProcessSlot::AddContexts(uint32_t gpu, int delta) {
  if (IsOwned()) slot().gpus[gpu].contexts.fetch_add(uint32_t(delta));
}

uint32_t State::FirstHolder(const SharedMemory& memory, bool only_live) {
  for (uint32_t word = 0; word < kMaxSlots / 64; ++word) {
    for (uint64_t bits = memory.holders[word].load(); bits != 0; bits &= bits - 1) {
      const uint32_t slot = word * 64 + uint32_t(__builtin_ctzll(bits));
      if (file_->slots[slot].claim_id.load() == 0) continue;
      if (!only_live || HolderOf(slot) >= 0) return slot;
    }
  }
  return kMaxSlots;
}

SharedMemory* State::FindShared(uint32_t gpu, uint64_t inode) {
  const uint32_t used = file_->shared_end[gpu].load();
  for (uint32_t i = 0; i < used; ++i) {
    if (file_->shared[gpu][i].inode.load() == inode) return &file_->shared[gpu][i];
  }
  return nullptr;
}

int ProcessSlot::Share(uint32_t gpu, uint64_t inode, uint64_t bytes, bool charged) {
  if (!IsOwned()) return ESTALE;
  State::ByteLock lock(state_, kChargeByte + gpu);
  if (lock.error() != 0) return lock.error();
  const auto is_held = [&](const SharedMemory& memory) {
    return state_->FirstHolder(memory, /*only_live=*/true) != kMaxSlots;
  };
  SharedMemory* memory = state_->FindShared(gpu, inode);
  if (memory == nullptr || !is_held(*memory)) {
    if (!charged && !HasRoom(gpu, bytes)) return ENOMEM;
    SharedMemory* const first = state_->file().shared[gpu];
    SharedMemory* const last = first + kMaxShared;
    if (memory == nullptr) memory = std::find_if_not(first, last, is_held);
    if (memory == last) return ENOSPC;
    const uint32_t gpu_instance = GpuInstanceOf(gpu);
    for (AtomicU64& holders : memory->holders) holders.store(0);
    memory->inode.store(inode);
    memory->bytes.store(bytes);
    memory->gpu_instance_plus_1.store(gpu_instance == State::kWholeGpu ? 0 : gpu_instance + 1);
    const auto count = uint32_t(memory - first) + 1;
    AtomicU32& used = state_->file().shared_end[gpu];
    if (used.load() < count) used.store(count);
  }
  memory->holders[index_ / 64].fetch_or(uint64_t(1) << index_ % 64);
  if (charged) slot().gpus[gpu].bytes.fetch_sub(bytes);
  return 0;
}

void ProcessSlot::Unshare(uint32_t gpu, uint64_t inode) {
  if (!IsOwned()) return;
  State::ByteLock lock(state_, kChargeByte + gpu);
  SharedMemory* const memory = state_->FindShared(gpu, inode);
  if (memory != nullptr) memory->holders[index_ / 64].fetch_and(~(uint64_t(1) << index_ % 64));
}

}  // namespace tessera::sim
