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

// Number of slots in the first read. A container with more processes needs a second read.
constexpr uint32_t kLines = 15;

// The GPU time of a process is clamped to 13 days, so that the sum over kMaxSlots processes fits in
// 64 bits.
constexpr int64_t kMaxNs = int64_t{1} << 50;

struct FirstLines {
  ComputeCharge charge;
  ComputeSlot slots[kLines];
};
static_assert(offsetof(FirstLines, slots) == offsetof(ComputeUsage, slots));

void AddLine(uint32_t slot, const ComputeSlot& line, Arbiter::ContainerReading* reading,
             ComputeTotals* totals) {
  const Arbiter::ProcessReading process = limiter::ReadLine(slot, line);
  if (process.last_written == 0) return;
  reading->processes.push_back(process);
  totals->gpu_time_ns += std::clamp<int64_t>(process.metered, 0, kMaxNs);
}

// Returns the number of used slots.
uint32_t AddFirstLines(const FirstLines& lines, Arbiter::ContainerReading* reading,
                       ComputeTotals* totals) {
  reading->charged = lines.charge.charged.load(limiter::kRelaxed);
  reading->processes.clear();
  totals->wait_time_ns =
      std::clamp<int64_t>(lines.charge.waited.load(limiter::kRelaxed), 0, kMaxNs);
  const uint32_t slots = std::min(lines.charge.slots.load(limiter::kRelaxed), limiter::kMaxSlots);
  for (uint32_t slot = 0; slot < std::min(slots, kLines); ++slot) {
    AddLine(slot, lines.slots[slot], reading, totals);
  }
  return slots;
}

}  // namespace

ComputeUsageFile::ComputeUsageFile(std::shared_ptr<const Fd> file, uint32_t gpu)
    : file_(std::move(file)),
      offset_(static_cast<off_t>(offsetof(Usage, compute) + gpu * sizeof(ComputeUsage))),
      mapping_(file_->get(), offset_, sizeof(FirstLines)) {}

std::optional<ComputeTotals> ComputeUsageFile::Read(Arbiter::ContainerReading* reading) {
  ComputeTotals totals;
  uint32_t slots = 0;
  const bool in_place = mapping_.valid() && mapping_.Read([&](const char* data) {
    slots = AddFirstLines(*reinterpret_cast<const FirstLines*>(data), reading, &totals);
  });
  if (!in_place) {
    FirstLines lines{};
    const ssize_t size = ::pread(file_->get(), &lines, sizeof(lines), offset_);
    if (size != ssize_t{sizeof(lines)}) return std::nullopt;
    totals = {};
    slots = AddFirstLines(lines, reading, &totals);
  }
  if (slots > kLines && !ReadMore(slots, reading, &totals)) return std::nullopt;
  return totals;
}

bool ComputeUsageFile::ReadMore(uint32_t slots, Arbiter::ContainerReading* reading,
                                ComputeTotals* totals) const {
  std::vector<ComputeSlot> lines(slots - kLines);
  const size_t size = lines.size() * sizeof(ComputeSlot);
  const ssize_t done =
      ::pread(file_->get(), lines.data(), size, offset_ + static_cast<off_t>(sizeof(FirstLines)));
  if (done != static_cast<ssize_t>(size)) return false;
  for (uint32_t slot = kLines; slot < slots; ++slot) {
    AddLine(slot, lines[slot - kLines], reading, totals);
  }
  return true;
}

}  // namespace tessera::agent
