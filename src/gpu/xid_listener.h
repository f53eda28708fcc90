// SPDX-License-Identifier: Apache-2.0
// Waits for XID events in the driver on a thread of its own while any GPU is watched. If a GPU
// hangs during its registration, the listener creates a new event set without this GPU. Included
// only in src/gpu.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/gpu/inventory.h"
#include "src/gpu/job_runner.h"
#include "src/gpu/nvml.h"

namespace tessera::gpu {

class XidListener {
 public:
  struct Hooks {
    std::function<void(const XidEvent&)> on_event;
    // The result of registering `device` for events; UNIMPLEMENTED if the GPU has no events.
    std::function<void(NvmlDevice device, const Status&)> on_watched;
    std::function<void(NvmlDevice device, NvmlCall)> on_hang;
    // Waiting failed, so all GPUs should be polled.
    std::function<void()> on_wait_failed;
  };

  // `runner`, `jobs` and `options` outlive the listener.
  XidListener(TaskRunner* runner, JobRunner* jobs, std::shared_ptr<Nvml> nvml,
              const InventoryOptions& options, Hooks hooks);

  void Watch(NvmlDevice device);
  // Afterwards no query starts; a running query may still return.
  void Stop() { stopped_ = true; }
  // Why events are not received; empty while they are.
  const std::string& problem() const { return problem_; }
  NvmlEventSet event_set() const { return event_set_; }

 private:
  void Continue();
  void ContinueAfter(Duration delay);
  void CreateSet();
  void RegisterNext();
  void Wait();
  void OnWaitEnded(const Result<XidEvent>& event, Duration took);
  void AbandonSetAfter(NvmlCall call);
  void ContinueAfterError();

  TaskRunner* const runner_;
  JobRunner* const jobs_;
  const std::shared_ptr<Nvml> nvml_;
  const InventoryOptions& options_;
  const Hooks hooks_;
  bool stopped_ = false;
  bool busy_ = false;        // during a query or a pause
  int abandoned_calls_ = 0;  // overdue calls that have not returned
  Duration backoff_{};
  std::string problem_;
  NvmlEventSet event_set_ = nullptr;
  std::vector<NvmlDevice> pending_devices_;
  std::vector<NvmlDevice> registered_devices_;
  std::vector<NvmlDevice> hung_devices_;  // until their registration returns
  WeakPtrFactory<XidListener> weak_{this};
};

}  // namespace tessera::gpu
