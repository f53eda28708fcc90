// SPDX-License-Identifier: Apache-2.0
// Counters of grants and of their release. Names and help texts are in metrics.cc. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/base/metrics.h"

namespace tessera::agent {

struct GrantMetrics {
  LatencyHistogram allocate_own;  // Allocate without waiting for the kubelet's list of pods
  LatencyHistogram grant;
  LabeledCounter grants;  // by code
  Counter journal_repairs;
  Counter named_other_gpus;  // grants of whole GPUs other than those that the kubelet named
  Counter starts_refused;
  std::atomic<uint64_t> leaving_containers{0};  // gauge
  Counter release_timeouts;
  std::atomic<uint64_t> unredeemed_tokens{0};  // gauge: containers with such a token
};

}  // namespace tessera::agent
