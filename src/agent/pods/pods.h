// SPDX-License-Identifier: Apache-2.0
// The pods of this node as the API server has them: what they ask for, and what the scheduler wrote
// on them. As an interface, so that grants run without a cluster.
//
// Threads: lives on the grants' runner, and calls back on it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/device/dialects.h"
#include "src/device/request.h"
#include "src/kube/objects.h"

namespace tessera::agent {

// Immutable: a pod that changes is another one.
struct PodInfo {
  std::string uid;  // by which kubelet and engine know it; see kube_pods.h for static pods
  std::string ns;
  std::string name;
  Result<device::Request> request = device::Request();  // an error: a rule that it breaks
  device::Annotations annotations;                      // those that src/device reads
  bool ended = false;                                   // its containers have ended for good
  kube::StringMap container_ids;                        // by container: "containerd://<id>"
  std::set<std::string, std::less<>> ended_containers;  // that do not run, or not again yet
  WallTime created{};

  std::string Text() const { return ns + "/" + name; }
};

// What people see of a pod in `kubectl describe pod`.
struct PodEvent {
  bool warning = false;
  std::string_view reason;  // of api/names.h
  std::string message;
  bool operator==(const PodEvent&) const = default;
};

class Pods {
 public:
  using Map = std::map<std::string, std::shared_ptr<const PodInfo>, std::less<>>;  // by UID

  class Listener {
   public:
    virtual ~Listener() = default;
    // Came, changed, or is gone.
    virtual void OnPod(const std::string& uid) = 0;
    // All are known from here on.
    virtual void OnPodsSynced() = 0;
  };

  virtual ~Pods() = default;
  // Before anything else, once. The listener outlives the pods.
  virtual void Start(Listener* listener) = 0;
  virtual const Map& pods() const = 0;
  // Whether all have come once: who is not there does not exist.
  virtual bool synced() const = 0;
  // Why they are not known, or not up to date; for people.
  virtual Status trouble() const = 0;
  // Writes the annotations on the pod some time soon, for as long as it exists; a later call for
  // the same pod adds to it.
  virtual void Annotate(const PodInfo& pod, const device::Annotations& annotations) = 0;
  // Makes an Event about the pod. It may be lost.
  virtual void Record(const PodInfo& pod, const PodEvent& event) = 0;
};

}  // namespace tessera::agent
