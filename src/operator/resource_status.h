// SPDX-License-Identifier: Apache-2.0
// The status of the resource Tessera: conditions Ready, Progressing and Degraded, the components,
// counts of nodes and the first problem nodes. Its size does not depend on the number of nodes.
//
// Threads: reports are values, and each thread may use its own copy; the functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/operator/driver/fleet.h"
#include "src/operator/node_states.h"

namespace tessera::operators {

enum class ComponentState : uint8_t { kReady, kProgressing, kFailed };

struct ComponentReport {
  std::string name;
  ComponentState state = ComponentState::kProgressing;
  std::string reason;   // a word in camel case
  std::string message;  // the problem and the remedy
  size_t object_count = 0;
  bool operator==(const ComponentReport&) const = default;
};

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
  std::vector<NodeProblem> problems;
  std::string access_error;  // which request failed, and why; "": none
};

struct StatusInput {
  int64_t generation = 0;
  Status spec_status;  // OK, or why the spec is invalid
  std::vector<ComponentReport> components;
  NodeHealth nodes;
  std::string coexistence_text;    // which nodes NVIDIA's operator manages; "": none
  std::string deletion_waits_for;  // what the deletion waits for; "": not being deleted
  std::string access_error;        // which watch or request fails; "": none
  // nullopt as in DriverController::report.
  std::optional<FleetReport> drivers;
};

// Builds the status. A condition keeps its lastTransitionTime from `previous` (null: no earlier
// status) while its status is the same.
Json StatusOf(const StatusInput& input, const Json* previous, WallTime now);

// Adds the driver problems of nodes that have no other problem.
void AddDriverProblems(const FleetReport& drivers, NodeHealth* nodes);

// The text of a value with sorted keys: equal for values that differ only in the order of keys.
std::string CanonicalText(const Json& value);

// The changes between two statuses, for Events: a line for each component and condition whose state
// differs.
struct StatusChange {
  bool warning = false;
  std::string reason;
  std::string message;
};
std::vector<StatusChange> ChangesBetween(const Json* previous, const Json& now);

// The reason of a failed request, in camel case, such as Forbidden or InvalidObject.
std::string ReasonOf(const Status& status);

}  // namespace tessera::operators
