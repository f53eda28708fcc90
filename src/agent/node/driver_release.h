// SPDX-License-Identifier: Apache-2.0
// Closes the driver while a file exists. An administrator creates the file before an upgrade of the
// driver or a reset of a GPU. While the driver is closed, no part of the agent opens it
// (gpu/driver_gate.h).
//
// Threads: lives on `runner`; the loaders may be called on any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/dir_watcher.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/gpu/driver_gate.h"
#include "src/gpu/nvml.h"

namespace tessera::agent {

class DriverReleaseWatch {
 public:
  // Delays after a change at which on_check is called. The second call catches a session that was
  // being opened during the first call.
  static constexpr Duration kCheckDelays[] = {std::chrono::seconds(1), std::chrono::seconds(4)};
  struct Events {
    std::function<void()> on_change;  // the driver was closed, or opened again
    std::function<void()> on_check;   // sessions with the driver must check whether it is closed
  };

  // The driver is closed if `file` exists now.
  DriverReleaseWatch(TaskRunner* runner, std::string file, Events events);
  DriverReleaseWatch(const DriverReleaseWatch&) = delete;
  DriverReleaseWatch& operator=(const DriverReleaseWatch&) = delete;

  // Begins to watch for the file.
  void Start() { watcher_.Start(); }
  bool closed() const { return gate_->closed(); }
  // Returns a loader that fails while the driver is closed, and else calls `loader`.
  std::shared_ptr<gpu::NvmlLoader> Gate(std::shared_ptr<gpu::NvmlLoader> loader) const {
    return std::make_shared<gpu::GatedLoader>(gate_, std::move(loader));
  }

 private:
  void SetClosed(bool closed);

  TaskRunner* const runner_;
  const std::string file_;
  const Events events_;
  const std::shared_ptr<gpu::DriverGate> gate_;
  DirWatcher watcher_;
  WeakPtrFactory<DriverReleaseWatch> weak_{this};
};

}  // namespace tessera::agent
