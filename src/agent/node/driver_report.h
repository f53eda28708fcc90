// SPDX-License-Identifier: Apache-2.0
// Finds the node's driver and its faults. A node may have a driver on the host, in a driver
// container (/run/nvidia/driver), or at a root that NVIDIA's validator names in a file. It may also
// have several drivers, a part of a driver, or no driver.
//
// Among several drivers the agent uses the driver whose libraries have the version of the loaded
// kernel module. If no version matches, it uses the first candidate, which is the host's driver,
// like NVIDIA's components.
//
// Threads: any. ReadDriverCandidate blocks for file system lookups; the rest is pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/agent/node/node_condition.h"

namespace tessera::agent {

struct DriverRoot {
  std::string host_path;       // "/run/nvidia/driver"
  std::string container_path;  // the same directory for this process
  bool operator==(const DriverRoot&) const = default;
};

struct DriverCandidate {
  DriverRoot root;
  // "550.163.01"; empty: the library is missing; "?": its name has no version.
  std::string nvml_version;
  std::string cuda_version;
  // Version of the loaded kernel module; equal for all candidates that are not simulated.
  std::string module_version;
  bool operator==(const DriverCandidate&) const = default;
};

struct DriverFacts {
  std::vector<DriverCandidate> candidates;  // not empty
  size_t gpus_on_bus = 0;
  // An administrator has closed the driver (driver_release.h), so its absence is no fault.
  bool maintenance = false;
  bool operator==(const DriverFacts&) const = default;
};

DriverCandidate ReadDriverCandidate(const DriverRoot& root);

// The version in the text of /proc/driver/nvidia/version; "" if the text has no version.
std::string KernelModuleVersion(std::string_view proc_version);

// The candidate to use; without any driver, the first candidate.
size_t ChooseDriver(const std::vector<DriverCandidate>& candidates);

// Sets the members of `findings` about the driver. `nvml_problem`: why there is no session with the
// driver; "" while there is one. NVML answers for a while after the driver's files are removed, but
// a container that starts then lacks these files.
void JudgeDriver(const DriverFacts& facts, std::string_view nvml_problem, NodeFindings* findings);

// Whether an ELF file is as long as its headers say. Opening a library that is still being copied
// could end the process.
bool IsWholeElf(const std::string& path);

}  // namespace tessera::agent
