// SPDX-License-Identifier: Apache-2.0
// Prevents two commands from changing the installation of a cluster at the same time, with Lease
// kube-system/tessera-installation. The Lease is not in Tessera's namespace, because the commands
// create and delete this namespace.
//
// A command that is killed leaves its Lease, which expires after kDuration. Times are compared
// between two machines. If their clocks differ by more than kDuration, a command may take the Lease
// from a running command, whose next Renew then fails.
//
// Threads: the client's thread. The destructor deletes the Lease.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"

namespace tessera::cli {

class InstallLock {
 public:
  static constexpr std::chrono::seconds kDuration{60};

  // `renew_interval`: the minimum time between two writes.
  explicit InstallLock(ClusterClient& api, Duration renew_interval = std::chrono::seconds(15))
      : api_(api), renew_interval_(renew_interval) {}
  ~InstallLock() { Release(); }
  InstallLock(const InstallLock&) = delete;
  InstallLock& operator=(const InstallLock&) = delete;

  // `command`: such as "tessera install". FAILED_PRECONDITION names the command that has the lock.
  Status Acquire(const std::string& command);
  // Call before each step of the command. ABORTED if another command has taken the lock.
  Status Renew();
  void Release();

 private:
  ClusterClient& api_;
  const Duration renew_interval_;
  std::string holder_;  // "": not acquired
  MonotonicTime renewed_at_{};
};

}  // namespace tessera::cli
