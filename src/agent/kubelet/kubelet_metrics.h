// SPDX-License-Identifier: Apache-2.0
// Counters of the device plugins: the kubelet's calls and registrations. Names and help texts are
// in metrics.cc. Threads: any.
#pragma once

#include "src/base/metrics.h"

namespace tessera::agent {

struct KubeletMetrics {
  LatencyHistogram allocate;
  LatencyHistogram preferred_allocation;
  LabeledCounter calls_refused;  // by method
  LabeledCounter registrations;  // by code
  Counter kubelet_restarts;
  Counter socket_repairs;
  Counter list_and_watch_messages;
};

}  // namespace tessera::agent
