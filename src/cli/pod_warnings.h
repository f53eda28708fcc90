// SPDX-License-Identifier: Apache-2.0
// The warnings that agents have recorded about a pod as Events, for `tessera explain`: rejected
// allocations, rejected limits, processes without a limiter. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/uid.h"
#include "src/formats/json.h"
#include "src/kube/client.h"

namespace tessera::cli {

struct PodWarning {
  std::string at;  // lastTimestamp of the Event
  std::string reason, message;
  int64_t count = 1;
};

// The Events to list for the pod.
kube::ListQuery WarningsQuery(const std::string& ns, const Uid& uid);
// The warnings of agents among `events`, the oldest first. `kubectl describe` shows the others.
std::vector<PodWarning> WarningsIn(const std::vector<kube::RawObject>& events);
Json JsonOf(const PodWarning& warning);

}  // namespace tessera::cli
