// SPDX-License-Identifier: Apache-2.0
// The files in /run/nvidia/validations by which NVIDIA's components wait for each other. The agent
// writes the files below while their conditions hold, so that components of the GPU operator can
// run on the same node, and removes them afterwards:
//
//   driver-ready   NVML answers. An environment file with the driver's roots, which NVIDIA's
//                  entrypoints source
//   toolkit-ready  containers get their GPUs: the engine starts them through tessera-runtime
//   plugin-ready   the kubelet has healthy GPUs to allocate
//
// Files that another writer made stay as they are; the agent reads the driver's root from
// driver-ready of another writer (driver_watch.h). cuda-ready is not written, because the agent
// runs no CUDA program.
//
// Threads: lives on `runner`; blocks for small files in memory.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/agent/node/driver_report.h"
#include "src/base/dir_watcher.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

struct ValidationState {
  std::optional<DriverRoot> driver;  // nullopt while NVML does not answer
  std::string dev_root = "/";        // host path
  bool toolkit_ready = false;
  bool plugin_ready = false;
  bool operator==(const ValidationState&) const = default;
};

class ValidationFiles {
 public:
  // `dir` as this process sees it.
  ValidationFiles(TaskRunner* runner, std::string dir);
  // Removes the files of this object.
  ~ValidationFiles();
  ValidationFiles(const ValidationFiles&) = delete;
  ValidationFiles& operator=(const ValidationFiles&) = delete;

  void Set(const ValidationState& state);

 private:
  void Write();

  const std::string dir_;
  std::map<std::string, std::optional<std::string>> contents_;  // by file name; nullopt: no file
  bool error_logged_ = false;
  // NVIDIA's validator removes all files when it ends.
  DirWatcher watcher_;
};

// The host path of the driver's root that another writer's driver-ready names; "" if there is no
// such file, or it names no root.
std::string DriverRootNamedIn(const std::string& driver_ready);

}  // namespace tessera::agent
