// SPDX-License-Identifier: Apache-2.0
// Prevents that two commands change the installation of a cluster at the same time, by Lease
// kube-system/tessera-installation. An installation creates and deletes its own namespace, so the
// Lease is not there.
//
// A command that is killed leaves its Lease, which expires after kDuration. Times are compared over
// two machines: if their clocks differ by more, a command may take the Lease from a running one,
// whose next Renew then fails.
//
// Threads: the client's. The destructor deletes the Lease.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"

namespace tessera::cli {

class InstallLock {
 public:
  static constexpr std::chrono::seconds kDuration{60};

  // `renewal`: the least time between two writes.
  explicit InstallLock(ClusterClient& api, Duration renewal = std::chrono::seconds(15))
      : api_(api), renewal_(renewal) {}
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
  const Duration renewal_;
  std::string holder_;  // "": not acquired
  MonotonicTime renewed_{};
};

}  // namespace tessera::cli
