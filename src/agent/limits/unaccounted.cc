// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/unaccounted.h"

#include <algorithm>

namespace tessera::agent {

void UnaccountedMemory::Add(MonotonicTime now, const MemorySample& sample) {
  const Bytes contexts =
      std::min(kContextAllowance * sample.processes, std::max(kContextTotalFloor, sample.limit));
  samples_.push_back({now, std::max(Bytes(0), sample.reported - contexts), sample.held});
  while (samples_.size() > kSamples || now - samples_.front().at > kWindow) samples_.pop_front();
  if (samples_.size() == kSamples) resumed_bytes_ = Bytes(0);
}

Bytes UnaccountedMemory::Get(MonotonicTime now) const {
  if (samples_.empty() || now - samples_.front().at > kWindow) return Bytes(0);
  Bytes reported = samples_.front().beyond_contexts;
  Bytes held;
  for (const TimedMemory& sample : samples_) {
    reported = std::min(reported, sample.beyond_contexts);
    held = std::max(held, sample.held);
  }
  const Bytes unaccounted = std::max(Bytes(0), reported - held);
  return samples_.size() == kSamples ? unaccounted : std::min(unaccounted, resumed_bytes_);
}

}  // namespace tessera::agent
