// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/compute_usage.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "src/limiter/region.h"

namespace tessera::agent {
namespace {

using limiter::Arbiter;
using limiter::ComputeCharge;
using limiter::ComputeSlot;
using limiter::ComputeUsage;
using limiter::Usage;

// Number of slots in the first read. More slots need a second read.
constexpr uint32_t kFirstSlotCount = 15;

// The GPU time of a process is clamped to 13 days, so that the sum over kMaxSlots processes fits in
// 64 bits.
constexpr int64_t kMaxNs = int64_t{1} << 50;

struct FirstSlots {
  ComputeCharge charge;
  ComputeSlot slots[kFirstSlotCount];
};
static_assert(offsetof(FirstSlots, slots) == offsetof(ComputeUsage, slots));

void AddSlot(uint32_t slot, const ComputeSlot& compute_slot, Arbiter::ContainerReading* reading,
             ComputeTotals* totals) {
  const Arbiter::ProcessReading process = limiter::ReadLine(slot, compute_slot);
  if (process.last_written == 0) return;
  reading->processes.push_back(process);
  totals->gpu_time_ns += std::clamp<int64_t>(process.metered, 0, kMaxNs);
}

// Returns the number of used slots.
uint32_t AddFirstSlots(const FirstSlots& first_slots, Arbiter::ContainerReading* reading,
                       ComputeTotals* totals) {
  reading->charged = first_slots.charge.charged.load(limiter::kRelaxed);
  reading->copied = first_slots.charge.copied.load(limiter::kRelaxed);
  reading->processes.clear();
  totals->wait_time_ns =
      std::clamp<int64_t>(first_slots.charge.waited.load(limiter::kRelaxed), 0, kMaxNs);
  const uint32_t slot_count =
      std::min(first_slots.charge.slots.load(limiter::kRelaxed), limiter::kMaxSlots);
  for (uint32_t slot = 0; slot < std::min(slot_count, kFirstSlotCount); ++slot) {
    AddSlot(slot, first_slots.slots[slot], reading, totals);
  }
  return slot_count;
}

}  // namespace

ComputeUsageFile::ComputeUsageFile(std::shared_ptr<const Fd> file, uint32_t gpu)
    : file_(std::move(file)),
      offset_(static_cast<off_t>(offsetof(Usage, compute) + gpu * sizeof(ComputeUsage))),
      mapping_(file_->get(), offset_, sizeof(FirstSlots)) {}

std::optional<ComputeTotals> ComputeUsageFile::Read(Arbiter::ContainerReading* reading) {
  ComputeTotals totals;
  uint32_t slot_count = 0;
  const bool in_place = mapping_.valid() && mapping_.Read([&](const char* data) {
    slot_count = AddFirstSlots(*reinterpret_cast<const FirstSlots*>(data), reading, &totals);
  });
  if (!in_place) {
    FirstSlots first_slots{};
    const ssize_t size = ::pread(file_->get(), &first_slots, sizeof(first_slots), offset_);
    if (size != ssize_t{sizeof(first_slots)}) return std::nullopt;
    totals = {};
    slot_count = AddFirstSlots(first_slots, reading, &totals);
  }
  if (slot_count > kFirstSlotCount && !ReadMore(slot_count, reading, &totals)) return std::nullopt;
  return totals;
}

bool ComputeUsageFile::ReadMore(uint32_t slot_count, Arbiter::ContainerReading* reading,
                                ComputeTotals* totals) const {
  std::vector<ComputeSlot> more_slots(slot_count - kFirstSlotCount);
  const size_t size = more_slots.size() * sizeof(ComputeSlot);
  const ssize_t done = ::pread(file_->get(), more_slots.data(), size,
                               offset_ + static_cast<off_t>(sizeof(FirstSlots)));
  if (done != static_cast<ssize_t>(size)) return false;
  for (uint32_t slot = kFirstSlotCount; slot < slot_count; ++slot) {
    AddSlot(slot, more_slots[slot - kFirstSlotCount], reading, totals);
  }
  return true;
}

}  // namespace tessera::agent
