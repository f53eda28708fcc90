// SPDX-License-Identifier: Apache-2.0
// Guesses the container for which the kubelet allocates, because the kubelet does not name it. The
// kubelet admits one pod at a time. So the guess is the first container, in the order of admission,
// that has an assignment and for which the kubelet has not allocated yet. GetPreferredAllocation
// follows the guess, so that PodResources names the right GPUs; a container gets its assignment
// also after a wrong guess.
//
// Threads: any. The grants' thread sets the list, gRPC's threads read it.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "src/base/uid.h"
#include "src/device/assignment.h"

namespace tessera::agent {

class AdmissionOrder {
 public:
  // A container that has an assignment.
  struct WaitingContainer {
    Uid pod_uid;
    std::string container;
    std::map<std::string, int64_t, std::less<>> units;  // requested, by resource
    std::vector<device::DeviceShare> shares;

    bool operator==(const WaitingContainer&) const = default;
  };

  // Replaces the waiting containers. `waiting` is in the order in which the kubelet allocates.
  void Set(std::vector<WaitingContainer> waiting);

  // The first container that requests `units` of the resource and has no allocation of it.
  std::optional<WaitingContainer> Next(std::string_view resource, int64_t units) const;
  // Records an allocation for the container that Next returns, if there is one.
  void AllocateNext(std::string_view resource, int64_t units);

 private:
  using Allocation = std::tuple<Uid, std::string, std::string>;  // pod, container, resource
  const WaitingContainer* Find(std::string_view resource, int64_t units) const;

  // Guards all members, because calls of the kubelet do not wait for the grants' thread.
  mutable std::mutex mutex_;
  std::vector<WaitingContainer> waiting_;
  std::set<Allocation> allocated_;
};

}  // namespace tessera::agent
