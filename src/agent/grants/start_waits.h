// SPDX-License-Identifier: Apache-2.0
// The three waits of a container start in the agent, with the longest time of each. Nothing else
// makes a start wait: a decision takes microseconds, and its record in the journal one flush of
// the disk.
//
// The callers wait longer. tessera-runtime waits 10 s for its grant (`grant_timeout` in
// src/runtime/options.h). The kubelet waits 30 s for PreStartContainer. It waits for Allocate
// without a limit, and admits no other pod to the node meanwhile.
#pragma once

#include "src/base/clock.h"

namespace tessera::agent {

// The wait of a grant, which tessera-runtime requests for each container with a token
// (grant_service.h). The agent waits for the pod, which the API server's watch delivers, and then
// for its GPUs, while processes of an ended pod still use them. Both waits have one deadline, from
// the arrival of the request; then the runtime gets UNAVAILABLE with the reason, and the kubelet
// retries the container.
inline constexpr Duration kGrantWait = std::chrono::seconds(5);

// The wait of Allocate, with --binding=allocate only (allocation_grants.h). The agent waits for the
// pod of the call, which the kubelet does not name. It retries after a temporary error, such as a
// GPU whose last container is still ending. If the wait ends without the pod, the device IDs alone
// choose the GPUs; if it ends in an error, the call returns the error.
inline constexpr Duration kAllocateWait = std::chrono::seconds(2);

// The wait of PreStartContainer, with --binding=allocate only (start_checks.h). The agent waits
// until the kubelet lists the container that holds the device IDs. If the kubelet does not within
// this time, the start fails with UNAVAILABLE, and the kubelet retries it.
inline constexpr Duration kStartCheckWait = std::chrono::seconds(5);

// Deadline of one list of the kubelet's pods, a part of each wait above. If the wait ends during
// such a request, the agent still waits for its response.
inline constexpr Duration kKubeletListWait = std::chrono::seconds(2);
static_assert(kKubeletListWait < kGrantWait && kKubeletListWait < kStartCheckWait);

}  // namespace tessera::agent
