// SPDX-License-Identifier: Apache-2.0
// What the agent answers to GetPreferredAllocation and Allocate. Texts of errors are those of
// NVIDIA's device plugin, because people and tools search for them. Pure but for stat(2) on
// optional device nodes; any thread.
#pragma once

#include <string>
#include <vector>

#include "src/agent/device_set.h"
#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/grant/token.h"

namespace tessera::agent {

// Who tells the container which GPUs it has.
enum class Binding {
  kLate,      // tessera-runtime, which asks the grant service with the token that Allocate gave
  kAllocate,  // Allocate itself, for engines with NVIDIA's runtime
};

struct EnvEntry {
  std::string name;
  std::string value;
  bool operator==(const EnvEntry&) const = default;
};

struct DeviceNode {
  std::string container_path;
  std::string host_path;
  bool operator==(const DeviceNode&) const = default;
};

// One container's answer.
struct Allocation {
  std::vector<EnvEntry> env;
  std::vector<DeviceNode> devices;
};

struct AllocationOptions {
  std::string resource;
  Binding binding = Binding::kLate;
  bool pass_device_specs = false;
  std::string dev_root = "/";           // as the host names it
  std::string dev_root_ctr_path = "/";  // as this process sees it
};

class Allocator {
 public:
  // `sealer` and `clock` outlive it. `sealer` may be null with Binding::kAllocate.
  Allocator(AllocationOptions options, const grant::TokenSealer* sealer, const Clock* clock);

  // UNKNOWN: an id that is not offered. Ids given twice count once.
  Result<Allocation> Allocate(const DeviceSet& set, const std::vector<std::string>& ids) const;

  // Empty where the question has no answer (fewer available than asked); UNKNOWN for an unknown id.
  Result<std::vector<std::string>> Prefer(const DeviceSet& set,
                                          const std::vector<std::string>& available,
                                          const std::vector<std::string>& must_include,
                                          int size) const;

 private:
  std::vector<DeviceNode> NodesOf(const DeviceSet& set, const std::vector<std::string>& ids) const;

  const AllocationOptions options_;
  const grant::TokenSealer* const sealer_;
  const Clock* const clock_;
};

// "/dev/nvidia3" below `root`.
std::string DevicePath(const std::string& root, int minor);

}  // namespace tessera::agent
