// SPDX-License-Identifier: Apache-2.0
// Writes the limits of containers as the files that their limiters read (src/limiter/region.h):
//
//   <dir>/<pod UID>/<container>/limits
//
// The directory is made before the grant is answered, and removed when the container holds nothing
// any more. A running container keeps the mounted file. grant_service.h decides grants. Threads:
// one; writes to a tmpfs (/run).
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/base/status.h"
#include "src/grant/message.h"

namespace tessera::agent {

// Namespaces by name; "*" means every namespace.
class NamespaceSet {
 public:
  NamespaceSet() = default;
  NamespaceSet(std::set<std::string> names) : names_(std::move(names)) {}  // NOLINT: a plain list

  bool Contains(const std::string& ns) const { return names_.contains("*") || names_.contains(ns); }

 private:
  std::set<std::string> names_;
};

// The file of a container below `dir`.
std::string LimitsPath(const std::string& dir, const GrantLedger::Key& key);

class ContainerLimits {
 public:
  // `dir` is made when it is needed; only root may enter it. `fail_open`: namespaces whose
  // containers may use their GPUs even if they cannot be limited.
  explicit ContainerLimits(std::string dir, NamespaceSet fail_open = {})
      : dir_(std::move(dir)), fail_open_(std::move(fail_open)) {}

  // Writes the limits of the container's GPUs and returns its directory; "" if no GPU is limited.
  // Running processes see the new limits at once. INVALID_ARGUMENT: a pod UID or container name
  // that cannot be a file name.
  Result<std::string> Write(const ContainerRef& holder,
                            const std::vector<grant::GrantedDevice>& devices);
  // Whether the container's file has the memory limits of `devices`.
  bool HasMemoryLimits(const ContainerRef& holder,
                       const std::vector<grant::GrantedDevice>& devices) const;
  bool FailsOpen(const ContainerRef& holder) const {
    return fail_open_.Contains(holder.pod_namespace);
  }
  // Removes the directories of containers that have no entry in `entries`, and of pods without such
  // a container.
  void RemoveExcept(const std::map<GrantLedger::Key, GrantLedger::Entry>& entries);

 private:
  const std::string dir_;
  const NamespaceSet fail_open_;
};

}  // namespace tessera::agent
