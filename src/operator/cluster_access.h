// SPDX-License-Identifier: Apache-2.0
// Client, Events and metrics with which parts of the operator read and write the cluster. They
// outlive the parts.
#pragma once

#include "src/kube/client.h"
#include "src/kube/events.h"
#include "src/operator/metrics.h"

namespace tessera::operators {

struct ClusterAccess {
  kube::Client& client;
  kube::EventRecorder& events;
  OperatorMetrics& metrics;
  kube::BeforeSend before_send;  // called before each write; its error prevents it
};

}  // namespace tessera::operators
