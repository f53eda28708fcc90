// SPDX-License-Identifier: Apache-2.0
// Which container the kubelet is allocating for. It never says; but it admits one pod at a time,
// and a container that has been assigned GPUs and that it has given none yet is the next to come,
// the oldest first. So this is a good guess and not the truth:
//
//   late binding       GetPreferredAllocation follows it, so that PodResources tells what the grant
//                      gives; where it was wrong, the grant follows the assignment all the same
//   binding: allocate  Allocate answers by it, and PreStartContainer holds it against PodResources
//
// Threads: any; the list comes from the grants' thread, questions from those of gRPC.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/device/assignment.h"

namespace tessera::agent {

class Admission {
 public:
  // A container that has been assigned GPUs.
  struct Waiting {
    std::string pod_uid;
    std::string pod_namespace;
    std::string pod_name;
    std::string container;
    std::map<std::string, int64_t, std::less<>> asks;  // units by resource
    std::vector<device::DeviceShare> shares;
    std::map<std::string, std::string> env;  // of its dialect

    std::string Text() const { return pod_namespace + "/" + pod_name; }
    bool operator==(const Waiting&) const = default;
  };

  // All that wait, in the order in which the kubelet will come to them.
  void Set(std::vector<Waiting> waiting);

  // The first that asks for so many of the resource and has not been given any.
  std::optional<Waiting> Next(std::string_view resource, int64_t units) const;
  // The same; where there is none, waits for one to come.
  std::optional<Waiting> WaitForNext(std::string_view resource, int64_t units, Duration patience);
  // The kubelet has taken these ids for it.
  void Give(const Waiting& to, const std::string& resource, const std::vector<std::string>& ids);
  // Whom an id was given for.
  std::optional<Waiting> HolderOf(std::string_view resource, const std::string& id) const;

 private:
  using Given = std::tuple<std::string, std::string, std::string>;  // UID, container, resource
  const Waiting* Find(std::string_view resource, int64_t units) const;

  // Guards all: the kubelet's questions do not wait for the grants' thread.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiting> waiting_;
  std::set<Given> given_;
  std::map<std::pair<std::string, std::string>, Waiting> holders_;  // by resource and id
};

}  // namespace tessera::agent
