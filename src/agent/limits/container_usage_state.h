// SPDX-License-Identifier: Apache-2.0
// What ContainerUsage knows of its containers; only for container_usage.cc and container_bypass.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agent/limits/container_usage.h"

namespace tessera::agent {

// Between rounds the runner's; `region` and `readings` are the jobs' while a round is under way.
struct ContainerUsage::Watched {
  ContainerRef who;
  std::vector<device::DeviceShare> shares;
  device::Variables env;
  std::shared_ptr<ContainerRegion> region;
  std::vector<UsageReading> before, after;
  Result<std::vector<int>> pids = std::vector<int>();  // with a limiter, as they know themselves
  bool readable = false;
  std::string container_id;  // as the jobs knew it in this round
  // The engine's ID, from the region or from the API server. "" and `is_alone`: the pod has no
  // other container with GPUs, so each process of the pod that uses one is of this container.
  std::string owner_id;
  bool is_alone = false;

  // The last check of which processes cannot see `limits`, and the one that is under way.
  std::set<int> hidden;  // pids
  std::optional<MonotonicTime> checking_since;

  std::optional<FoundContainer> newly_found;
  bool searching = false;
  bool searched = false;  // at least once: before that it is not known whether it runs
  MonotonicTime next_search{};
  Duration pause = kInterval;
  bool from_before = false;           // what it was refused was before us
  std::map<std::string, OnGpu> gpus;  // by UUID
  std::shared_ptr<const Fd> usage;
};

// A process that the driver reports.
struct ContainerUsage::ReportedProcess {
  int pid = 0;
  ProcessOwner owner;
  std::optional<int> own_pid;
  std::string name;
  bool is_alive = false;   // after its container's processes were read
  bool is_hidden = false;  // it cannot see the limits of its container
};

struct ContainerUsage::Round {
  std::vector<std::shared_ptr<Watched>> all;
  std::set<const Watched*> missing;  // to be searched for
  PodProcessMap processes;           // where something is missing
  std::shared_ptr<const gpu::ProcessReport> report;
  std::map<int, ReportedProcess> reported;  // by pid
};

}  // namespace tessera::agent
