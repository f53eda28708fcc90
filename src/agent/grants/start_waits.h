// SPDX-License-Identifier: Apache-2.0
// What a container start waits for in the agent, and how long at most: three waits, below. Nothing
// else makes a start wait: a decision takes microseconds, its record in the journal one flush of
// the disk.
//
// The callers wait longer: tessera-runtime 10 s for its grant (`grant_timeout` in
// src/runtime/options.h), the kubelet 30 s for PreStartContainer, and for Allocate without a limit,
// while it admits no other pod to the node.
#pragma once

#include "src/base/clock.h"

namespace tessera::agent {

// A grant, which tessera-runtime requests for each container with a token (grant_service.h). Waits
// for the pod, which the API server's watch delivers, and then for its GPUs, while processes of an
// ended pod still use them. One deadline for both, from the arrival of the request; then the
// runtime gets UNAVAILABLE with the reason, and the kubelet retries the container.
inline constexpr Duration kGrantWait = std::chrono::seconds(5);

// Allocate, with --binding=allocate only (allocation_grants.h). Waits for the pod of the call,
// which the kubelet does not name, and for an error that may pass. Then the device IDs alone choose
// the GPUs, or the error is the answer.
inline constexpr Duration kAllocateWait = std::chrono::seconds(2);

// PreStartContainer, with --binding=allocate only (start_checks.h). Waits for an answer of the
// kubelet, which lists the container that holds the device IDs. Then the start fails with
// UNAVAILABLE, and the kubelet retries it.
inline constexpr Duration kStartCheckWait = std::chrono::seconds(5);

// Deadline of one list of the kubelet's pods, a part of each wait above. A list that runs when the
// wait ends is still awaited.
inline constexpr Duration kKubeletListWait = std::chrono::seconds(2);
static_assert(kKubeletListWait < kGrantWait && kKubeletListWait < kStartCheckWait);

}  // namespace tessera::agent
