// SPDX-License-Identifier: Apache-2.0
// Which container the kubelet is allocating for. It never says; but it admits one pod at a time,
// and a container that has been assigned GPUs and that it has given none yet is the next to come,
// the first that came to the node. So this is a good guess and not the truth:
// GetPreferredAllocation follows it, so that PodResources tells what the container gets; where it
// was wrong, the container gets its assignment all the same.
//
// Threads: any; the list comes from the grants' thread, questions from those of gRPC.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "src/device/assignment.h"

namespace tessera::agent {

class Admission {
 public:
  // A container that has been assigned GPUs.
  struct Waiting {
    std::string pod_uid;
    std::string container;
    std::map<std::string, int64_t, std::less<>> asks;  // units by resource
    std::vector<device::DeviceShare> shares;

    bool operator==(const Waiting&) const = default;
  };

  // All that wait, in the order in which the kubelet will come to them.
  void Set(std::vector<Waiting> waiting);

  // The first that asks for so many of the resource and has not been given any.
  std::optional<Waiting> Next(std::string_view resource, int64_t units) const;
  // The kubelet has allocated for it, if there is one.
  void GiveNext(std::string_view resource, int64_t units);

 private:
  using Given = std::tuple<std::string, std::string, std::string>;  // UID, container, resource
  const Waiting* Find(std::string_view resource, int64_t units) const;

  // Guards all: the kubelet's questions do not wait for the grants' thread.
  mutable std::mutex mutex_;
  std::vector<Waiting> waiting_;
  std::set<Given> given_;
};

}  // namespace tessera::agent
