// SPDX-License-Identifier: Apache-2.0
// What the agent answers to GetPreferredAllocation and Allocate. Texts of errors are those of
// NVIDIA's device plugin, because people and tools search for them. Pure but for stat(2) on
// optional device nodes; any thread.
#pragma once

#include <string>
#include <vector>

#include "src/agent/admission.h"
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
  Admission* admission = nullptr;       // may be null
};

// What one resource answers to the kubelet. Any thread.
class PluginAnswers {
 public:
  virtual ~PluginAnswers() = default;
  virtual Result<Allocation> Allocate(const DeviceSet& set,
                                      const std::vector<std::string>& ids) const = 0;
  // Whether the kubelet shall ask for preferred allocations.
  virtual bool prefers() const = 0;
  virtual Result<std::vector<std::string>> Prefer(const DeviceSet& set,
                                                  const std::vector<std::string>& available,
                                                  const std::vector<std::string>& must_include,
                                                  int size) const = 0;
};

// Whole GPUs.
class Allocator final : public PluginAnswers {
 public:
  // `sealer` and `clock` outlive it. `sealer` may be null with Binding::kAllocate.
  Allocator(AllocationOptions options, const grant::TokenSealer* sealer, const Clock* clock);

  // UNKNOWN: an id that is not offered. Ids given twice count once.
  Result<Allocation> Allocate(const DeviceSet& set,
                              const std::vector<std::string>& ids) const override;

  bool prefers() const override { return true; }
  // Empty where the question has no answer (fewer available than asked); UNKNOWN for an unknown id.
  Result<std::vector<std::string>> Prefer(const DeviceSet& set,
                                          const std::vector<std::string>& available,
                                          const std::vector<std::string>& must_include,
                                          int size) const override;

 private:
  std::vector<DeviceNode> NodesOf(const DeviceSet& set, const std::vector<std::string>& ids) const;

  const AllocationOptions options_;
  const grant::TokenSealer* const sealer_;
  const Clock* const clock_;
};

// Units of a resource that shares GPUs (share_units.h). Only for Binding::kLate: which GPU it will
// be is not known yet.
class ShareAllocator final : public PluginAnswers {
 public:
  // Both outlive it.
  ShareAllocator(std::string resource, const grant::TokenSealer* sealer, const Clock* clock);

  // UNKNOWN: an id that is not offered.
  Result<Allocation> Allocate(const DeviceSet& set,
                              const std::vector<std::string>& ids) const override;
  bool prefers() const override { return false; }
  Result<std::vector<std::string>> Prefer(const DeviceSet& set,
                                          const std::vector<std::string>& available,
                                          const std::vector<std::string>& must_include,
                                          int size) const override;

 private:
  const std::string resource_;
  const grant::TokenSealer* const sealer_;
  const Clock* const clock_;
};

// What the token of a share says: the first of its ids and how many they are, because thousands
// would not fit into an environment.
std::vector<std::string> ShareTokenIds(const std::vector<std::string>& ids);
// How many units such ids stand for.
int64_t UnitsOfToken(const std::vector<std::string>& ids);

// "/dev/nvidia3" below `root`.
std::string DevicePath(const std::string& root, int minor);

}  // namespace tessera::agent
