// SPDX-License-Identifier: Apache-2.0
// What the status of the resource and the metrics say about drivers. Threads: values.
#pragma once

#include <string>
#include <vector>

#include "src/operator/driver/fleet.h"

namespace tessera::operators {

struct DriverPoolReport {
  std::string name;
  driver::UpgradeCounts counts;
  int on_host = 0;      // nodes with a driver of the host
  std::string blocked;  // why no further node begins to upgrade; "": one may
  std::string plan;     // of the upgrade that waits or runs, for people; "": none
  bool operator==(const DriverPoolReport&) const = default;
};

struct FleetReport {
  std::vector<DriverPoolReport> pools;  // that have a managed driver
  std::vector<driver::FleetProblem> problems;
  std::string unseen;  // what cannot be read, and why; "": nothing
};

}  // namespace tessera::operators
