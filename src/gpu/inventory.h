// SPDX-License-Identifier: Apache-2.0
// Keeps the GPUs of this node up to date through NVML: their identity, links and health. A bad GPU,
// a failing call or a hanging call affects only its GPU, not the node. It does not choose GPUs
// (src/placement) or offer them to pods (src/agent).
//
// The reasons why a GPU is unhealthy, each with the condition under which it is healthy again:
//   an XID that needs a      a repair (health_tracker.h), then `good_polls_after_xid` good polls
//   repair (see xid.h)
//   an unknown XID           `xid_quiet` without another XID, then as many good polls
//   MIG mode                 MIG mode off
//   a call that fails        the same queries succeed
//   a call that hangs        an answer to this call or to a later call
//   no longer reported       reported again; the GPU is dropped when the driver is reloaded
// If the driver is missing, fails or hangs as a whole, the snapshot has zero GPUs and a `problem`,
// and the inventory retries at least every `retry_max`. A driver that was replaced on disk is
// reloaded.
//
// Threads: lives on `runner`; calls NVML only through `caller`. Cost for healthy GPUs: three NVML
// calls for each GPU every `poll_interval`, and one thread that sleeps in the driver.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/clock.h"
#include "src/base/task_runner.h"
#include "src/device/gpu.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/nvml.h"
#include "src/gpu/xid.h"

namespace tessera::gpu {

using InventorySnapshot = std::shared_ptr<const device::NodeInventory>;

struct InventoryOptions {
  std::string sys_root = "/sys";    // …/bus/pci/devices/<bdf>/numa_node
  std::string proc_root = "/proc";  // …/driver/nvidia/gpus/<bdf>/information, for silent GPUs
  // The driver root of each session, below which a driver may bring its own proc/ and sys/; see
  // driver_files.h. Called on the runner.
  std::function<std::string()> find_driver_root = nullptr;
  XidPolicy xids;
  // Called for each XID that the driver reports, also for one without an effect on health. `uuid`
  // is empty if the GPU is unknown.
  std::function<void(const std::string& uuid, uint64_t code)> on_xid = nullptr;
  // The file that keeps XIDs that need a repair across restarts of the agent; "": none.
  std::string xid_file;

  Duration poll_interval = std::chrono::seconds(10);
  // Retry interval on problems: starts at retry_min and doubles up to retry_max.
  Duration retry_min = std::chrono::milliseconds(250);
  Duration retry_max = std::chrono::seconds(2);
  // Deadline of all queries of one GPU. Init gets longer, because it wakes GPUs without persistence
  // mode.
  Duration call_deadline = std::chrono::seconds(5);
  Duration init_deadline = std::chrono::seconds(60);
  // How long the first snapshot waits for slow GPUs. Less than call_deadline.
  Duration first_snapshot_within = std::chrono::seconds(1);
  Duration event_wait = std::chrono::seconds(5);  // timeout of one wait for events
  Duration xid_quiet = std::chrono::seconds(60);
  int good_polls_after_xid = 3;
};

// For metrics. Counters only grow.
struct InventoryStats {
  // By call and the vendor's name of the error, "GPU_IS_LOST". Unsupported calls are not counted.
  std::map<std::pair<NvmlCall, std::string_view>, uint64_t> nvml_errors;
  std::map<NvmlCall, uint64_t> hung_calls;
  std::map<std::pair<std::string, uint64_t>, uint64_t> xids;  // uuid, code
  uint64_t driver_loads = 0;
  int calls_stuck = 0;  // gauge: calls that hang right now
};

class Inventory {
 public:
  // Called on the runner with each snapshot that differs from the one before.
  using OnChange = std::function<void(InventorySnapshot)>;

  // `runner`, `loader` and `caller` must outlive the inventory. `loader` is used on other threads.
  Inventory(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader, BlockingCaller* caller,
            InventoryOptions options, OnChange on_change);
  ~Inventory();
  Inventory(const Inventory&) = delete;
  Inventory& operator=(const Inventory&) = delete;

  void Start();
  // Polls every GPU, or looks for the driver, without waiting for the next interval. Call after an
  // error or after creating device nodes.
  void PollNow();
  // The latest snapshot; null before the first snapshot.
  InventorySnapshot snapshot() const;
  const InventoryStats& stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::gpu
