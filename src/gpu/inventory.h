// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node, from NVML, kept up to date: who they are, how they are linked, whether
// they are well. One bad GPU, one failing call or one call that never returns costs that GPU, not
// the node. Not for choosing GPUs (src/placement) nor for offering them to anyone (src/agent).
//
// What makes a GPU unhealthy, and what makes it well again:
//   an XID that needs a      a repair (health_tracker.h), then `good_polls_after_xid` good answers
//   repair, by the catalogue
//   an unknown XID           `xid_quiet` without another one and as many good answers
//   MIG mode                 MIG mode off
//   a call that fails        the same questions answered again
//   a call that hangs        an answer, to that call or to a later one
//   not reported any more    reported again; forgotten when the driver was loaded anew
// A driver that is missing, fails or hangs as a whole gives zero GPUs and `problem`, and is tried
// again, at least every `retry_max`. A driver that was replaced on disk is loaded anew.
//
// Threads: lives on `runner`; NVML is called only through `caller`. Cost when all is well: three
// NVML calls for each GPU every `poll_interval`, and one thread that sleeps in the driver.
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
  // A driver that brings its own proc/ and sys/ below this is asked there; see driver_files.h.
  std::string driver_root;
  XidPolicy xids;
  // Remembers which XIDs wait for a repair; "": forgets them when the agent ends.
  std::string xid_file;

  Duration poll_interval = std::chrono::seconds(10);
  // While something is wrong: from retry_min, doubled up to retry_max.
  Duration retry_min = std::chrono::milliseconds(250);
  Duration retry_max = std::chrono::seconds(2);
  // A GPU's questions together. Init is longer: it wakes GPUs without persistence mode.
  Duration call_deadline = std::chrono::seconds(5);
  Duration init_deadline = std::chrono::seconds(60);
  // The first snapshot waits so long for GPUs that are slow. < call_deadline.
  Duration first_snapshot_within = std::chrono::seconds(1);
  Duration event_wait = std::chrono::seconds(5);
  Duration xid_quiet = std::chrono::seconds(60);
  int good_polls_after_xid = 3;
};

// For metrics. Counters only grow.
struct InventoryStats {
  // By call and the vendor's name of the error, "GPU_IS_LOST". What the driver lacks is not
  // counted.
  std::map<std::pair<NvmlCall, std::string_view>, uint64_t> nvml_errors;
  std::map<NvmlCall, uint64_t> hung_calls;
  std::map<std::pair<std::string, uint64_t>, uint64_t> xids;  // uuid, code
  uint64_t driver_loads = 0;
  uint64_t snapshots = 0;
  int calls_stuck = 0;  // gauge: calls that hang right now
};

class Inventory {
 public:
  // Called on the runner with each snapshot that differs from the one before.
  using OnChange = std::function<void(InventorySnapshot)>;

  // `runner`, `loader` and `caller` outlive the inventory. `loader` is used on other threads.
  Inventory(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader, BlockingCaller* caller,
            InventoryOptions options, OnChange on_change);
  ~Inventory();
  Inventory(const Inventory&) = delete;
  Inventory& operator=(const Inventory&) = delete;

  void Start();
  // Polls every GPU, or looks for the driver, now and not at the next interval: somebody saw an
  // error, or made device nodes.
  void PollNow();
  // The latest; null before the first.
  InventorySnapshot snapshot() const;
  const InventoryStats& stats() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tessera::gpu
