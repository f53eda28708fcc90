// SPDX-License-Identifier: Apache-2.0
// The smoke test of a node: whether a GPU pod that is scheduled now would start. It runs in the
// agent and starts no container. Its steps, in this order:
//
//   driver     NVML answers, and the driver has libcuda
//   devices    the device nodes of every healthy GPU exist and can be opened
//   kubelet    the kubelet reads the lists of all device plugins
//   engine     the container engine starts containers through tessera-runtime
//
// A node whose smoke test passes loses its startup taint (node_condition.h). A step that fails is
// the reason of condition GPUReady. A step may wait for kGrace before it fails, so that restarts of
// agent and kubelet do not change the condition.
//
// Threads: lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/device/gpu.h"

namespace tessera::agent {

struct SmokeFacts {
  std::shared_ptr<const device::NodeInventory> inventory;  // null: unknown yet
  std::string driver_problem;                              // found in the driver's files
  // One text for each device node with a problem; nullopt: not examined yet.
  std::optional<std::vector<std::string>> device_problems;
  bool expects_kubelet = false;
  bool registered = false;
  bool expects_engine = false;
  std::optional<std::string> engine_problem;  // nullopt: not checked yet
};

struct SmokeVerdict {
  enum class State { kPassed, kWaiting, kFailed };
  State state = State::kWaiting;
  std::string problem;  // the first step that has not passed, and what to do
  bool operator==(const SmokeVerdict&) const = default;
};

// Pure.
SmokeVerdict JudgeSmokeTest(const SmokeFacts& facts);

// Opens the device nodes of the healthy GPUs, and returns their faults. The nodes of a simulated
// driver belong to no kernel module, so they only have to exist. Blocks while the driver wakes a
// GPU.
std::vector<std::string> OpenDeviceNodes(const std::string& dev_root,
                                         const std::vector<int>& minors, bool simulated);

class SmokeTest {
 public:
  static constexpr Duration kGrace = std::chrono::seconds(10);
  // Interval in which a device node that cannot be opened is examined again.
  static constexpr Duration kDeviceRetry = std::chrono::seconds(5);

  using Problems = std::vector<std::string>;
  // Opens the nodes of GPUs with these minors on another thread, and calls `done` on the runner.
  using OpenDevices =
      std::function<void(std::vector<int> minors, std::function<void(Problems)> done)>;
  // Called when the verdict changes.
  using OnVerdict = std::function<void(const SmokeVerdict&)>;

  SmokeTest(TaskRunner* runner, bool expects_kubelet, bool expects_engine, OpenDevices open,
            OnVerdict on_verdict);
  SmokeTest(const SmokeTest&) = delete;
  SmokeTest& operator=(const SmokeTest&) = delete;

  // Examines the device nodes if there is a healthy GPU that the last examination does not include.
  void SetInventory(std::shared_ptr<const device::NodeInventory> inventory);
  void SetDriverProblem(std::string problem);
  void SetRegistered(bool registered);
  void SetEngineProblem(std::string problem);

  const SmokeVerdict& verdict() const { return verdict_; }

 private:
  // Opens the device nodes of minors_. Drops the result of an examination that still runs.
  void ExamineAnew();
  void Examine();
  void OnExamined(uint64_t examination, Problems problems);
  void Judge();

  TaskRunner* const runner_;
  const OpenDevices open_;
  const OnVerdict on_verdict_;
  SmokeFacts facts_;
  std::vector<int> minors_;   // of the healthy GPUs
  uint64_t examination_ = 0;  // number of the current examination; an earlier result is dropped
  std::optional<MonotonicTime> waiting_since_;
  SmokeVerdict verdict_;
  WeakPtrFactory<SmokeTest> weak_{this};
};

}  // namespace tessera::agent
