// SPDX-License-Identifier: Apache-2.0
// Which processes compute on which GPU now, with how much memory and how much load, asked of the
// driver when somebody wants to know and not otherwise. Not for who these processes are (the
// agent), nor for whether GPUs are well (inventory.h).
//
// It has a driver session of its own, opened with the first question, and anew when the driver was
// replaced or its session died. One question is under way at a time; who asks meanwhile gets the
// same answer, and so does who asks within kFresh after it, so that a scrape every second by five
// servers costs the driver one.
//
// Threads, callbacks: the runner's. Cost when nobody asks: none.
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
  int pid = 0;  // in our pid namespace
  Bytes memory;
  int percent = 0;
  bool operator==(const ProcessUse&) const = default;
};

struct ProcessReport {
  struct Gpu {
    std::string uuid;
    std::vector<ProcessUse> processes;  // by pid
  };
  // Why there is nothing: no driver, one that hangs. A single GPU that does not answer is left out.
  Status status;
  std::vector<Gpu> gpus;
};

class ProcessReader {
 public:
  static constexpr Duration kFresh = std::chrono::milliseconds(500);
  // Loads are those of this long before.
  static constexpr Duration kPeriod = std::chrono::seconds(1);
  static constexpr Duration kDeadline = std::chrono::seconds(3);

  using OnRead = std::function<void(std::shared_ptr<const ProcessReport>)>;

  // All outlive it; `loader` is used on other threads.
  ProcessReader(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader, BlockingCaller* caller);
  ~ProcessReader();
  ProcessReader(const ProcessReader&) = delete;
  ProcessReader& operator=(const ProcessReader&) = delete;

  // Calls back once, later, and never after the reader is gone. A question that hangs is answered
  // with DEADLINE_EXCEEDED, and so are those that follow, until the driver is back.
  void Read(OnRead on_read);
  // Closes the session where the driver has gone, without waiting for the next question.
  void Refresh();

 private:
  struct Session;
  struct State;
  void Start();

  const std::shared_ptr<State> state_;
};

}  // namespace tessera::gpu
