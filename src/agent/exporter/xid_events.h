// SPDX-License-Identifier: Apache-2.0
// Events on pods whose GPU reported an XID. The driver names the GPU and not the process, so each
// pod with a share of the GPU gets the Event. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "src/agent/grants/holdings.h"
#include "src/agent/pods/pods.h"
#include "src/base/clock.h"
#include "src/base/uid.h"

namespace tessera::agent {

struct ContainerEvent {
  ContainerRef holder;
  PodEvent event;
};

class XidEvents {
 public:
  // Minimum time between two Events with the same XID, container and GPU, because a fault can
  // repeat its XID many times a second.
  static constexpr Duration kMinInterval = std::chrono::minutes(5);

  std::vector<ContainerEvent> OnXid(const Holdings& holdings, const std::string& uuid,
                                    uint64_t code, MonotonicTime now);

 private:
  // Time of the last Event, by pod UID, container, GPU UUID and XID.
  std::map<std::tuple<Uid, std::string, std::string, uint64_t>, MonotonicTime> recorded_at_;
};

}  // namespace tessera::agent
