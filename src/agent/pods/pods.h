// SPDX-License-Identifier: Apache-2.0
// The pods of this node as the API server has them: their requests, and the annotations that the
// scheduler wrote. It is an interface, so that tests of grants run without a cluster.
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
#include "src/base/strings.h"
#include "src/base/uid.h"
#include "src/device/dialects.h"
#include "src/device/request.h"
#include "src/kube/objects.h"

namespace tessera::agent {

// Immutable: a change makes a new PodInfo.
struct PodInfo {
  Uid uid;  // the kubelet's and the engine's UID; see kube_pods.h for static pods
  std::string ns;
  std::string name;
  Result<device::DeviceRequest> request =
      device::DeviceRequest();  // an error: the request is invalid
  StringMap annotations;        // only the annotations that src/device reads
  bool ended = false;           // its containers have ended for good
  StringMap container_ids;      // by container: "containerd://<id>"
  std::set<std::string, std::less<>> ended_containers;  // not started again yet
  WallTime created{};

  std::string Text() const { return ns + "/" + name; }
  bool HasEnded(std::string_view container) const {
    return ended || ended_containers.contains(container);
  }
  // The <id> of "containerd://<id>", which also names the container's cgroup. "": unknown.
  std::string ContainerId(std::string_view container) const {
    const auto found = container_ids.find(container);
    return found == container_ids.end() ? "" : found->second.substr(found->second.rfind('/') + 1);
  }
};

// An Event about a pod, as `kubectl describe pod` shows it.
struct PodEvent {
  bool warning = false;
  std::string_view reason;  // from api/names.h
  std::string message;
  bool operator==(const PodEvent&) const = default;
};

class Pods {
 public:
  using Map = std::map<Uid, std::shared_ptr<const PodInfo>>;

  class Delegate {
   public:
    virtual ~Delegate() = default;
    // Called when a pod was added, changed or deleted.
    virtual void OnPod(const Uid& uid) = 0;
    // Called when the first list is complete.
    virtual void OnPodsSynced() = 0;
  };

  virtual ~Pods() = default;
  // REQUIRES: called once, before anything else. The delegate outlives the pods.
  virtual void Start(Delegate* delegate) = 0;
  virtual const Map& pods() const = 0;
  // Null for an unknown pod. Valid until the next change of the pods.
  const PodInfo* Find(const Uid& uid) const {
    const auto found = pods().find(uid);
    return found == pods().end() ? nullptr : found->second.get();
  }
  // The pod of this name that has not ended, else null.
  const PodInfo* FindByName(std::string_view ns, std::string_view name) const {
    for (const auto& [uid, pod] : pods()) {
      if (!pod->ended && pod->ns == ns && pod->name == name) return pod.get();
    }
    return nullptr;
  }
  // Whether the first list is complete: a pod that is missing then does not exist.
  virtual bool synced() const = 0;
  // For users: why pods are unknown or out of date.
  virtual Status last_error() const = 0;
  // Writes the annotations on the pod soon, and retries while the pod exists. A later call for the
  // same pod adds to the annotations.
  virtual void Annotate(const PodInfo& pod, const StringMap& annotations) = 0;
  // Records an Event about the pod. The Event may be lost.
  virtual void Record(const PodInfo& pod, const PodEvent& event) = 0;
};

}  // namespace tessera::agent
