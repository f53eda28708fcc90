// SPDX-License-Identifier: Apache-2.0
// Reads which processes compute on which GPU now, with their memory and load. It queries the driver
// only on request. It finds neither the owners of these processes (src/agent) nor the health of
// GPUs (inventory.h).
//
// It opens its own session with the driver at the first request, and a new session if the driver
// was replaced or the session died. Each GPU is queried on a thread of its own, so a hanging GPU
// delays no other. An answer contains the GPUs that returned their processes within kGpuDeadline. A
// hanging GPU is queried again after its call has returned.
//
// One query runs at a time. Requests during a query, and within kMaxAge after it, share its answer
// unless they ask for a newer one. Five servers that scrape every second thus cost the driver one
// query per second.
//
// Threads: the runner's, also for callbacks. Without requests there is no cost.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/units.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/nvml.h"

namespace tessera::gpu {

struct ProcessUse {
  int pid = 0;  // in the agent's pid namespace
  Bytes memory;
  int percent = 0;
  bool operator==(const ProcessUse&) const = default;
};

struct ProcessReport {
  struct GpuProcesses {
    std::string uuid;
    std::vector<ProcessUse> processes;  // by pid
  };
  // Why the report is empty: the driver is missing, or no GPU answers. A GPU that does not answer
  // is missing in `gpus`: its processes are unknown.
  Status status;
  std::vector<GpuProcesses> gpus;  // by index
};

class ProcessReader {
 public:
  static constexpr Duration kMaxAge = std::chrono::milliseconds(500);
  // The period over which loads are measured.
  static constexpr Duration kLoadPeriod = std::chrono::seconds(1);
  // The deadline for opening a session, which may initialize GPUs.
  static constexpr Duration kOpenDeadline = std::chrono::seconds(3);
  static constexpr Duration kGpuDeadline = std::chrono::milliseconds(250);

  using OnRead = std::function<void(std::shared_ptr<const ProcessReport>)>;

  // All arguments must outlive the reader; `loader` is used on other threads.
  ProcessReader(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader, BlockingCaller* caller);
  ~ProcessReader();
  ProcessReader(const ProcessReader&) = delete;
  ProcessReader& operator=(const ProcessReader&) = delete;

  // Calls back once, asynchronously, and never after the reader is destroyed. The answer is at most
  // `max_age` old, plus the time of the query. If the session cannot be opened or checked in time,
  // this request, and all later requests until the driver works again, are answered with
  // DEADLINE_EXCEEDED.
  void Read(OnRead on_read, Duration max_age = kMaxAge);
  // Closes the session if the driver has disappeared, without waiting for the next request.
  void Refresh();

 private:
  struct NvmlSession;
  struct SessionCheck;
  struct State;

  const std::unique_ptr<State> state_;
};

}  // namespace tessera::gpu
