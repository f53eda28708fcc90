// SPDX-License-Identifier: Apache-2.0
// The answers of one resource to the kubelet's GetPreferredAllocation, Allocate and
// PreStartContainer. With late binding Allocate returns a token.
//
// With --binding=allocate it returns the environment and device nodes of the GPUs that the grants'
// thread grants (allocation_grants.h). The environment has the variables of NVIDIA's device plugin
// and of older systems' images. PreStartContainer is answered with an error if the GPUs do not
// belong to the container (start_checks.h).
//
// Error texts equal the texts of NVIDIA's device plugin, because people and tools search for them.
// Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/agent/kubelet/admission_order.h"
#include "src/agent/kubelet/device_set.h"
#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/grant/message.h"
#include "src/grant/token.h"

namespace tessera::agent {

// What gives a container its GPUs.
enum class BindingMode {
  kLate,      // tessera-runtime, which presents the token of Allocate to the grant service
  kAllocate,  // Allocate itself, for engines with NVIDIA's runtime
};

struct DeviceSpec {
  std::string container_path;
  std::string host_path;
  bool operator==(const DeviceSpec&) const = default;
};

// The answer to Allocate for one container.
struct ContainerAllocation {
  StringMap env;
  std::vector<DeviceSpec> devices;
  StringMap annotations;  // annotations of the container in the engine
};

// Allocates GPUs, and checks them before a container starts. Call on any thread. `done` is called
// once, on any thread, or not at all if the object is destroyed before.
class KubeletGrants {
 public:
  virtual ~KubeletGrants() = default;
  virtual void Allocate(const std::string& resource, const std::vector<std::string>& ids,
                        std::function<void(Result<grant::Grant>)> done) = 0;
  virtual void Check(const std::string& resource, const std::vector<std::string>& ids,
                     std::function<void(Status)> done) = 0;
};

struct DeviceSpecOptions {
  bool pass_device_specs = false;       // Allocate also returns device nodes
  std::string dev_root = "/";           // path on the host
  std::string dev_root_ctr_path = "/";  // path in this process
};

// Answers the kubelet's calls for one resource. Any thread.
class PluginResponder {
 public:
  enum class Ids {
    kGpus,        // UUIDs of whole GPUs
    kShareUnits,  // units of a resource that shares GPUs (share_units.h)
  };
  using OnAllocated = std::function<void(Result<ContainerAllocation>)>;
  using OnChecked = std::function<void(Status)>;

  // The arguments must outlive the object. `admission_order` serves whole GPUs and may be null.
  // `grants`: null with late binding. `device_specs`: with `grants`.
  PluginResponder(std::string resource, Ids ids, const grant::TokenSigner* signer,
                  const Clock* clock, AdmissionOrder* admission_order = nullptr,
                  KubeletGrants* grants = nullptr, DeviceSpecOptions device_specs = {});

  // The answer to Allocate. Calls `done` once, now or later, on any thread, or drops it when the
  // agent stops. UNKNOWN: an ID that is not offered.
  void Answer(const DeviceSet& set, const std::vector<std::string>& ids, OnAllocated done) const;
  // The answer with late binding: the IDs, signed into a token. Ignores repeated IDs. UNKNOWN: see
  // Answer.
  Result<ContainerAllocation> Allocate(const DeviceSet& set,
                                       const std::vector<std::string>& ids) const;
  // Whether the kubelet must call PreStartContainer. Check answers that call; it calls `done` like
  // Answer.
  bool requires_pre_start() const { return grants_ != nullptr; }
  void Check(const std::vector<std::string>& ids, OnChecked done) const;
  // Whether the kubelet calls GetPreferredAllocation. Units of a share are interchangeable.
  bool has_preference() const { return ids_ == Ids::kGpus; }
  // Returns no IDs if fewer IDs are available than requested. UNKNOWN: an ID is unknown.
  Result<std::vector<std::string>> Prefer(const DeviceSet& set,
                                          const std::vector<std::string>& available,
                                          const std::vector<std::string>& must_include,
                                          int size) const;

 private:
  Status CheckIds(const DeviceSet& set, const std::vector<std::string>& ids) const;

  const std::string resource_;
  const Ids ids_;
  const grant::TokenSigner* const signer_;
  const Clock* const clock_;
  AdmissionOrder* const admission_order_;
  KubeletGrants* const grants_;
  const DeviceSpecOptions device_specs_;
};

// Returns `ids` without duplicates, in the same order.
std::vector<std::string> WithoutRepeats(const std::vector<std::string>& ids);
// The IDs of a share in a token: the smallest ID and the number of the others, because thousands of
// IDs would not fit into an environment. The kubelet passes equal IDs in another order each time.
std::vector<std::string> ShareTokenIds(const std::vector<std::string>& ids);
// The number of units that a token with these IDs stands for.
int64_t UnitsOfToken(const std::vector<std::string>& ids);

// "/dev/nvidia3" below `root`.
std::string DevicePath(const std::string& root, int minor);

}  // namespace tessera::agent
