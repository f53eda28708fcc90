// SPDX-License-Identifier: Apache-2.0
// Whether the node is ready for GPU pods, and if not, why: follows the driver (driver_watch.h),
// runs the smoke test (smoke_test.h), writes NVIDIA's validation files (validation_files.h), and
// combines the findings for the Node's condition.
//
// Threads: lives on `runner`; driver_root() and the loaders may be called on any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/agent/node/driver_watch.h"
#include "src/agent/node/node_condition.h"
#include "src/agent/node/smoke_test.h"
#include "src/agent/node/validation_files.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

struct ReadinessOptions {
  DriverWatchOptions driver;
  std::string validations_dir;   // "": no validation files
  std::string dev_root = "/";    // host path
  bool expects_kubelet = false;  // a pod starts only if the kubelet has the device plugins
  bool expects_engine = false;   // a pod starts only if the engine uses tessera-runtime
  std::function<size_t()> gpus_on_bus;
  SmokeTest::OpenDevices open_devices;
  std::function<void()> on_driver_files;  // a driver appeared, vanished or changed
  std::function<void()> on_findings;      // findings() changed
};

class NodeReadiness {
 public:
  NodeReadiness(TaskRunner* runner, ReadinessOptions options);
  NodeReadiness(const NodeReadiness&) = delete;
  NodeReadiness& operator=(const NodeReadiness&) = delete;

  // Begins to follow the driver.
  void Start();
  // `maintenance`: an administrator has closed the driver, so a driver that does not answer is no
  // fault.
  void SetInventory(std::shared_ptr<const device::NodeInventory> inventory, bool maintenance);
  // Why all GPUs must be withheld: the driver's files are missing or incomplete, so a container
  // that starts now would lack them. NVML may go on answering from removed files. "": no reason.
  std::string ReasonToWithhold(const device::NodeInventory& inventory, bool maintenance) const;
  void SetRegistered(bool registered);
  void SetEngineProblem(const std::string& problem);

  DriverRoot driver_root() const { return watch_->root(); }
  std::shared_ptr<gpu::NvmlLoader> MakeLoader() const {
    return std::make_shared<FoundDriverLoader>(watch_);
  }
  const NodeFindings& findings() const { return findings_; }

 private:
  // Returns findings_ with the current findings about the driver.
  NodeFindings Judge(const device::NodeInventory& inventory, bool maintenance) const;
  void JudgeDriverFiles();
  void OnVerdict(const SmokeVerdict& verdict);
  void WriteValidations();

  const ReadinessOptions options_;
  const std::shared_ptr<DriverWatch> watch_;
  std::shared_ptr<const device::NodeInventory> inventory_;
  bool maintenance_ = false;
  bool registered_ = false;
  bool engine_ready_ = false;
  NodeFindings findings_;
  std::unique_ptr<ValidationFiles> validations_;
  SmokeTest smoke_test_;
};

}  // namespace tessera::agent
