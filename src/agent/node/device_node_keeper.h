// SPDX-License-Identifier: Apache-2.0
// Keeps the driver's device nodes present (device_nodes.h): makes them at the start, every
// kRetryInterval while the driver reports no GPU, when GPUs change, and when a node is removed.
// Loads a missing kernel module with modprobe, at most once in kModprobeInterval, because the cause
// of a failure may persist.
//
// Threads: lives on `runner`; modprobe runs on a worker.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/agent/node/device_nodes.h"
#include "src/base/dir_watcher.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"

namespace tessera::agent {

struct DeviceNodeKeeperOptions {
  std::string dev_root;                      // as this process sees it
  std::function<std::string()> driver_root;  // the current driver's root, as this process sees it
  std::function<bool()> driver_has_gpus;     // false: the driver may wait for device nodes
};

class DeviceNodeKeeper {
 public:
  static constexpr Duration kRetryInterval = std::chrono::seconds(5);
  static constexpr Duration kModprobeInterval = std::chrono::minutes(1);

  DeviceNodeKeeper(TaskRunner* runner, DeviceNodeKeeperOptions options);
  DeviceNodeKeeper(const DeviceNodeKeeper&) = delete;
  DeviceNodeKeeper& operator=(const DeviceNodeKeeper&) = delete;

  void Start();
  // Call when the GPUs or the driver have changed. Makes missing nodes now.
  void Update();
  // Makes the nodes of the driver whose root this process sees at `driver_root`. Call before a
  // session with this driver is opened: the session counts only GPUs that have nodes.
  void MakeNodes(const std::string& driver_root);

 private:
  void MakeNodes() { MakeNodes(options_.driver_root()); }
  void LogReport(const DeviceNodeReport& report);
  void LoadModule(const std::string& driver_root, const std::string& module);

  TaskRunner* const runner_;
  const DeviceNodeKeeperOptions options_;
  DeviceNodes nodes_;
  bool retry_armed_ = false;
  std::unique_ptr<Worker> modprobe_;  // null until a module must be loaded
  MonotonicTime next_modprobe_{};
  std::string last_problems_;
  DirWatcher watcher_;
  WeakPtrFactory<DeviceNodeKeeper> weak_{this};
};

}  // namespace tessera::agent
