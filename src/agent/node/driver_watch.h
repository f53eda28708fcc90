// SPDX-License-Identifier: Apache-2.0
// Follows the node's driver while the agent runs: finds a driver on the host or in a driver
// container when it appears, and drops it when it is removed.
//
// A driver container mounts its root, which inotify does not report. So a few directories are
// polled twice a second, and everything else is read only after a change in these directories.
//
// Threads: lives on `runner`; root() may be called on any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/agent/node/driver_report.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/gpu/nvml.h"

namespace tessera::agent {

struct DriverWatchOptions {
  std::vector<DriverRoot> roots;  // not empty; the host's first
  // The host's root directory in this process: "/driver-root". If it is set, a root that NVIDIA's
  // validator names in `driver_ready` is the first candidate.
  std::string host_mount;
  std::string driver_ready;  // path for this process; "": none
  // If set, called on the runner with each new root before a driver can be loaded from it.
  std::function<void(const DriverRoot&)> before_use = nullptr;
};

class DriverWatch {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(500);
  using OnChange = std::function<void()>;

  DriverWatch(TaskRunner* runner, DriverWatchOptions options);
  DriverWatch(const DriverWatch&) = delete;
  DriverWatch& operator=(const DriverWatch&) = delete;

  // Calls `on_change` when files of a driver have changed, also if its root stays.
  void Start(OnChange on_change);
  DriverRoot root() const;
  // The facts about the driver's files; `gpus_on_bus` and `maintenance` are not set.
  const DriverFacts& facts() const { return facts_; }

 private:
  void Tick();
  std::vector<DriverRoot> Roots() const;
  // A text that changes when the watched files change.
  std::string Stamp() const;
  void FindDriver();

  TaskRunner* const runner_;
  const DriverWatchOptions options_;
  OnChange on_change_;
  std::string stamp_;
  DriverFacts facts_;
  mutable std::mutex mutex_;  // loaders read root_ on threads that may hang in a driver
  DriverRoot root_;
  WeakPtrFactory<DriverWatch> weak_{this};
};

// Loads NVML from the root that the watch has found.
class FoundDriverLoader final : public gpu::NvmlLoader {
 public:
  explicit FoundDriverLoader(std::shared_ptr<const DriverWatch> watch) : watch_(std::move(watch)) {}

  // Errors of NvmlLibraryLoader; UNAVAILABLE while the library is being written.
  Result<std::shared_ptr<gpu::Nvml>> Load() override;
  std::string Fingerprint() override;

 private:
  const std::shared_ptr<const DriverWatch> watch_;
};

}  // namespace tessera::agent
