// SPDX-License-Identifier: Apache-2.0
// Private types of ContainerUsage; included only in container_usage.cc and container_bypass.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agent/limits/container_usage.h"
#include "src/base/strings.h"

namespace tessera::agent {

// A watched container. Used on the runner; during a round the jobs use `region`, the readings,
// `pids` and `container_id`.
struct ContainerUsage::WatchedContainer {
  ContainerRef holder;
  std::vector<device::DeviceShare> shares;
  StringMap env;
  std::shared_ptr<ContainerRegion> region;
  std::vector<UsageReading> before, after;  // readings before and after NVML's report
  // The PIDs of the container's processes that have a limiter, each in its own PID namespace.
  Result<std::vector<int>> pids = std::vector<int>();
  bool readable = false;     // `usage` could be read in this round
  std::string container_id;  // from the region, at the start of this round
  // The engine's ID, from the region or from the API server. If it is "" and `is_alone` is true,
  // each process of the pod that uses a GPU belongs to this container.
  std::string owner_id;
  bool is_alone = false;  // the pod has no other container with GPUs

  // The processes that could not see `limits` in the last check, and when the running check
  // started.
  std::set<int> hidden;  // pids
  std::optional<MonotonicTime> checking_since;

  std::optional<FoundContainer> newly_found;
  bool searching = false;
  bool searched = false;  // false: no search has ended, so it is unknown whether it runs
  MonotonicTime next_search{};
  Duration pause = kInterval;
  bool existed_before_agent = false;              // until the agent has read `usage` once
  std::map<std::string, ContainerGpuState> gpus;  // by UUID
  std::shared_ptr<const Fd> usage;
};

// A process that the driver reports.
struct ContainerUsage::ReportedProcess {
  int pid = 0;
  ProcessOwner owner;
  std::optional<int> pid_in_container;
  std::string name;
  bool is_alive = false;   // it ran after the readings of its container
  bool is_hidden = false;  // it cannot see the limits of its container
  // Memory of the container that no limiter counts, if it is more than a program's code can
  // explain.
  Bytes uncounted;
  bool exceeds_compute = false;  // the container uses far more compute than its limit
};

struct ContainerUsage::Round {
  std::vector<std::shared_ptr<WatchedContainer>> all;
  std::set<const WatchedContainer*> missing;  // containers to search for
  PodProcessMap processes;                    // empty if `missing` is empty
  std::shared_ptr<const gpu::ProcessReport> report;
  std::map<int, ReportedProcess> reported;  // by pid
};

}  // namespace tessera::agent
