// SPDX-License-Identifier: Apache-2.0
// The implementation of Inventory: one session with the driver, and probes of its GPUs. Included
// only in src/gpu. inventory.cc opens and closes sessions and publishes snapshots;
// inventory_probes.cc queries the GPUs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/gpu/gpu_table.h"
#include "src/gpu/inventory.h"
#include "src/gpu/job_runner.h"
#include "src/gpu/xid_listener.h"

namespace tessera::gpu {

class Inventory::Impl {
 public:
  Impl(TaskRunner* runner, std::shared_ptr<NvmlLoader> loader, BlockingCaller* caller,
       InventoryOptions options, OnChange on_change);

  void Start();
  void PollNow();
  const InventorySnapshot& snapshot() const { return snapshot_; }
  const InventoryStats& stats() const { return stats_; }

 private:
  enum class SessionPhase {
    kClosed,   // no driver; a retry is scheduled
    kOpening,  // load and Init are in progress
    kOpen,
    kDraining,  // waits for running queries before closing the session
    kClosing,   // all queries have returned; Open closes the session
  };
  enum class ReopenReason { kSessionDied, kDriverReplaced, kGpuLost };

  // The state of the queries to the GPU at one index.
  struct GpuQueryState {
    bool busy = false;      // a query is running and not overdue
    bool answered = false;  // at least one query has returned or is overdue
    bool last_ok = false;   // the last answer was a success
    bool retry_armed = false;
    bool links_busy = false;
    int stuck = 0;  // overdue queries that have not returned
    int link_tries = 0;
    Duration backoff{};
  };

  std::string DriverRoot() const {
    return options_.find_driver_root ? options_.find_driver_root() : "";
  }

  // Sessions: inventory.cc.
  void Open();
  void OnOpened(SessionReport& report);
  void OnNoGpus();
  void OnOpenFailed(const std::string& problem);
  void RetryOpenAfter(Duration delay);
  void OnSessionBroken(ReopenReason reason);
  void OnDrained();
  void StartListener();
  void Tick();
  void CheckDriver();
  void ReopenForLostGpus();
  void IdentifyAll();
  void OnJobEnded();
  bool ReadyToPublish() const;
  void Publish();
  // Runs `task` later, unless the session or the inventory has ended.
  void PostInSession(Duration delay, std::function<void()> task);

  // Probes: inventory_probes.cc.
  void Probe(int index);
  // Runs `work` for the GPU at `index`, and passes its report to `on_report`.
  template <typename Report>
  void Query(int index, std::function<void(NvmlCalls*, Report*)> work,
             void (Impl::*on_report)(int index, const Report&));
  void Identify(int index);
  void Poll(int index, const GpuTable::GpuRecord& record);
  void OnIdentityReport(int index, const IdentityReport& report);
  void OnPollReport(int index, const PollReport& report);
  void OnOverdue(int index, NvmlCall call);
  void StartLinks();
  void QueryLinks(int index);
  void ArmRetry(int index, Duration delay);
  void RetryFailed(int index);
  void OnXid(const XidEvent& event);

  TaskRunner* const runner_;
  const std::shared_ptr<NvmlLoader> loader_;
  const InventoryOptions options_;
  const OnChange on_change_;
  InventoryStats stats_;
  JobRunner jobs_;

  SessionPhase phase_ = SessionPhase::kClosed;
  std::shared_ptr<Nvml> nvml_;
  std::string fingerprint_;
  bool library_missing_ = false;  // the library's file was missing at the last check
  std::string driver_version_;
  int cuda_version_ = 0;
  std::string problem_;
  std::vector<std::string> notes_;
  std::unique_ptr<XidListener> listener_;
  Duration open_backoff_{};
  int opens_stuck_ = 0;
  bool checking_driver_ = false;
  MonotonicTime last_reopen_{};
  MonotonicTime session_started_{};

  UnrepairedXidFile unrepaired_xid_file_;
  GpuTable table_;
  std::vector<GpuQueryState> queries_;
  bool publish_incomplete_ = false;  // do not wait longer for slow GPUs
  bool links_started_ = false;
  bool forget_absent_ = false;  // call ForgetAbsent when all GPUs have answered
  InventorySnapshot snapshot_;
  WeakPtrFactory<Impl> weak_{this};
};

}  // namespace tessera::gpu
