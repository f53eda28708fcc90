// SPDX-License-Identifier: Apache-2.0
// The client, the Event recorder and the metrics that the parts of the operator share. All three
// must outlive the parts.
#pragma once

#include "src/kube/client.h"
#include "src/kube/events.h"
#include "src/operator/metrics.h"

namespace tessera::operators {

struct ClusterAccess {
  kube::Client& client;
  kube::EventRecorder& events;
  OperatorMetrics& metrics;
  kube::BeforeSend before_send;  // called before each write; its error prevents the write
};

}  // namespace tessera::operators
