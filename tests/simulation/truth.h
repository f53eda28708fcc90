// SPDX-License-Identifier: Apache-2.0
// The GPUs on which containers really run. Checks the invariants of a history, independently of all
// ledgers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/base/uid.h"
#include "src/grant/message.h"
#include "src/kube/objects.h"
#include "tests/simulation/world.h"

namespace tessera::simulation {

inline constexpr int64_t kGpuBytes = int64_t{80} << 30;

class Truth {
 public:
  explicit Truth(World& world) : world_(world) {}

  // A container starts with its grant. Checks that no GPU is oversubscribed, that a whole GPU has
  // one holder, that the container has the GPUs and amounts of its pod's assignment, and that a
  // restarted container has its previous GPUs.
  void Starts(const kube::PodObject& pod, const std::string& container, const grant::Grant& grant);
  void Ends(const Uid& uid, const std::string& container);
  // The pod was deleted.
  void Forget(const Uid& uid) { first_devices_.erase(uid); }

  size_t running() const { return running_.size(); }
  size_t started() const { return started_; }

 private:
  using Key = std::pair<Uid, std::string>;  // pod, container
  void CheckGpu(const std::string& uuid);
  void CheckAssigned(const kube::PodObject& pod, const std::string& container,
                     const grant::Grant& grant);

  World& world_;
  std::map<Key, std::vector<grant::GrantedDevice>> running_;
  // What each container of a pod had at its first start.
  std::map<Uid, std::map<std::string, std::vector<grant::GrantedDevice>>> first_devices_;
  size_t started_ = 0;
};

}  // namespace tessera::simulation
