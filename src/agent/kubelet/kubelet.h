// SPDX-License-Identifier: Apache-2.0
// The agent's calls to the kubelet: registration of a device plugin, and the list of pods and their
// devices. Both are interfaces, so that tests of their callers run in virtual time.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

struct Registration {
  std::string endpoint;  // base name of the plugin's socket
  std::string resource;
  bool pre_start = false;  // the kubelet calls PreStartContainer
};

// Threads: the runner's. `done` is called on it, once, never from within the call.
class KubeletRegistry {
 public:
  using Done = std::function<void(Status)>;

  virtual ~KubeletRegistry() = default;
  // Identifies the kubelet's socket file; "" while the file is missing.
  virtual std::string SocketIdentity() const = 0;
  // The kubelet calls the plugin's server before it answers. UNAVAILABLE: no kubelet listens.
  virtual void Register(const Registration& registration, Done done) = 0;
};

struct HeldDevices {
  std::string pod_namespace;
  std::string pod_name;
  std::string container;
  std::string resource;
  std::vector<std::string> ids;
};

struct PodDevices {
  // Every active pod, also a pod without devices. `held_devices` does not include ordinary init
  // containers.
  std::vector<std::pair<std::string, std::string>> pods;  // namespace, name
  std::vector<HeldDevices> held_devices;

  bool Lists(const std::string& pod_namespace, const std::string& pod_name) const {
    return std::find(pods.begin(), pods.end(), std::pair(pod_namespace, pod_name)) != pods.end();
  }
};

// Threads: the runner's. `done` is called on it, once, never from within the call.
class PodResources {
 public:
  using Done = std::function<void(Result<PodDevices>)>;

  virtual ~PodResources() = default;
  virtual void List(Done done) = 0;
};

}  // namespace tessera::agent
