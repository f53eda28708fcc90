// SPDX-License-Identifier: Apache-2.0
// The state of drivers for the status of the resource and for metrics. Threads: reports are values,
// and each thread may use its own copy.
#pragma once

#include <string>
#include <vector>

#include "src/operator/driver/fleet.h"

namespace tessera::operators {

struct DriverPoolReport {
  std::string name;
  driver::UpgradeCounts counts;
  int on_host = 0;      // nodes with a driver of the host or of NVIDIA's operator
  std::string blocked;  // why no further node may begin to upgrade; "": a node may begin
  std::string plan;     // of the upgrade that waits or runs, for users; "": none
  bool operator==(const DriverPoolReport&) const = default;
};

struct FleetReport {
  std::vector<DriverPoolReport> pools;  // pools with a managed driver
  std::vector<driver::FleetProblem> problems;
  std::string access_error;  // which request failed, and why; "": none
};

}  // namespace tessera::operators
